#!/usr/bin/env bash
# Installs the Java SDK as pom.xml says, compiles the scenarios and runs them.
source "$(dirname "$0")/../tools.sh"
source "$(dirname "$0")/../jvm/jvm.sh"

jvm java
installed "$@"
run_jvm busbar.Main
