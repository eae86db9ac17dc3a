#!/usr/bin/env bash
# Installs Apache Camel with its component for the original as pom.xml says, and runs routes over it.
source "$(dirname "$0")/../../conformance/tools.sh"
source "$(dirname "$0")/../../conformance/jvm/jvm.sh"

jvm camel
installed "$@"
run_jvm busbar.Flow
