#!/usr/bin/env bash
# Installs Apache Camel with its component for the original as pom.xml says, and runs routes over it.
pinned=one # by the files here
source "$(dirname "$0")/../../conformance/tools.sh"
source "$(dirname "$0")/../../conformance/jvm/jvm.sh"

jvm camel
installed "$@"
run_jvm busbar.Flow
