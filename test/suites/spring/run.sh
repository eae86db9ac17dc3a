#!/usr/bin/env bash
# Installs Spring with its JMS support as pom.xml says, and runs an application over it.
pinned=one # by the files here
source "$(dirname "$0")/../../conformance/tools.sh"
source "$(dirname "$0")/../../conformance/jvm/jvm.sh"

jvm spring
installed "$@"
run_jvm busbar.Flow
