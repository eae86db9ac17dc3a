#!/usr/bin/env bash
# Builds the scenarios with a version of AMQPNetLite and runs them.
source "$(dirname "$0")/../tools.sh"
source "$(dirname "$0")/../clr/clr.sh"

clr amqpnetlite
installed
run_clr
