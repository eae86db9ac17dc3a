#!/usr/bin/env bash
# Installs a version of the Java SDK with what pom.xml adds, compiles the scenarios and runs them.
source "$(dirname "$0")/../tools.sh"
source "$(dirname "$0")/../jvm/jvm.sh"

jvm java
installed
run_jvm busbar.Main
