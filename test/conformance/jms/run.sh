#!/usr/bin/env bash
# Installs the JMS client of Qpid as pom.xml says, compiles the scenarios and runs them.
source "$(dirname "$0")/../tools.sh"
source "$(dirname "$0")/../jvm/jvm.sh"

jvm jms
installed
run_jvm busbar.Main
