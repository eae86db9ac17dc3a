# Sourced after tools.sh by the run.sh of the languages of the Java machine.

# jvm NAME: fills dir with the libraries of pom.xml, where ${sdk} is the version that is asked for, and
# the compiled sources, those beside this file too.
jvm() {
	need javac 'install a JDK of version 17 or newer'
	need mvn 'install Maven'
	if tools "$1" pom.xml; then
		fresh
		mvn -q -B -f "$here/pom.xml" -Dsdk="$version" -DoutputDirectory="$dir/lib" -DincludeScope=runtime \
			org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies >&2
		filled
	fi
	local sources=("$here"/src/busbar/*.java "$(dirname "${BASH_SOURCE[0]}")"/*.java)
	classes=$dir/classes-$(cat "${sources[@]}" | sha256sum | cut -c1-12)
	if [[ ! -d $classes ]]; then
		# Another checkout may run its own classes from this directory now: only old ones go.
		find "$dir" -maxdepth 1 -name 'classes-*' -mtime +1 -exec rm -rf {} +
		local part
		part=$(mktemp -d "$classes.XXXXXX")
		javac -nowarn -Xlint:none -cp "$dir/lib/*" -d "$part" "${sources[@]}" >&2
		mv -T "$part" "$classes" 2>/dev/null || rm -rf "$part" # another run was faster
	fi
}

# run_jvm CLASS: trusts the authority of the nodes and no other. The better compiler of the Java machine costs
# a short run more than it saves. The library runs handlers on the threads of Reactor's bounded scheduler, ten for
# each processor. Scenarios run side by side: with too few threads a handler waits for one of another scenario, and
# the lock of its message ends meanwhile.
run_jvm() {
	trust=$dir/trust-$$.p12 # not local: the trap comes after this function
	trap 'rm -f "$trust"' EXIT
	if [[ -n ${BUSBAR_CA-} ]]; then
		keytool -importcert -noprompt -alias busbar -file "$BUSBAR_CA" -keystore "$trust" \
			-storetype PKCS12 -storepass changeit >&2
	fi
	java -Djavax.net.ssl.trustStore="$trust" -Djavax.net.ssl.trustStorePassword=changeit \
		-Djavax.net.ssl.trustStoreType=PKCS12 -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
		-Dreactor.schedulers.defaultBoundedElasticSize=500 -cp "$classes:$dir/lib/*" "$1" $only
}
