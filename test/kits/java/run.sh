#!/usr/bin/env bash
# Runs the tests of the kit for Java; pom.xml pins the SDK and JUnit.
pinned=kit
source "$(dirname "$0")/../../conformance/tools.sh"

need javac 'install a JDK of version 17 or newer'
need mvn 'install Maven'
if tools kit-java pom.xml; then
	fresh
	filled
fi
installed
cd "$here"
exec mvn -q -B -Dbuilt="$dir/target" test
