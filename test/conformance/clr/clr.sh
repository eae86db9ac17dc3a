# Sourced after tools.sh by the run.sh of the libraries for .NET.

export DOTNET_CLI_TELEMETRY_OPTOUT=1 DOTNET_NOLOGO=1

# clr NAME: builds the project beside run.sh with the version that is asked for into dir.
clr() {
	need dotnet 'install the SDK of .NET 10 or newer'
	if tools "$1" "$1.csproj" "$here"/*.cs "$here"/../clr/*.cs; then
		fresh
		# What a build leaves beside a project stays out of the repository.
		dotnet build "$here/$1.csproj" --nologo --verbosity quiet --configuration Release --output "$dir/out" \
			-p:SdkVersion="$version" -p:BaseIntermediateOutputPath="$dir/obj/" >&2
		filled
	fi
}

# run_clr trusts the authority of the nodes and no other.
run_clr() {
	if [[ -n ${BUSBAR_CA-} ]]; then export SSL_CERT_FILE=$BUSBAR_CA; fi
	exec dotnet "$dir/out/scenarios.dll" $only
}
