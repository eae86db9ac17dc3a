#!/usr/bin/env bash
# Builds the scenarios with a version of the official library for .NET and runs them.
source "$(dirname "$0")/../tools.sh"
source "$(dirname "$0")/../clr/clr.sh"

clr dotnet
installed
run_clr
