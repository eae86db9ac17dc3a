#!/usr/bin/env bash
# Builds KEDA's scaler for the original from KEDA's own files, and lets it watch entities.
#
# The module has the scalers of seventy systems in one package, with the clients of all of them. Taken
# from it, as they are, are the files of this scaler and of what it reads its settings and connects with;
# testdata/overlay has the words that the left out files define, and in place of packages that log, count
# and tell Kubernetes of events what does nothing.
pinned=v2.21.0
source "$(dirname "$0")/../../conformance/tools.sh"

sum=h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps=
files=(
	apis/keda/v1alpha1/triggerauthentication_types.go
	pkg/eventreason/eventreason.go
	pkg/scalers/{azure_servicebus_scaler,scaler}.go
	pkg/scalers/azure/{azure_aad_auth,azure_aad_workload_identity,azure_azidentity_chain}.go
	pkg/scalers/azure/{azure_cloud_environment,azure_service_principal,cloud_config}.go
	pkg/scalers/scalersconfig/{scalersconfig,typed_config}.go
	pkg/util/{certificates,env_resolver,http,normalize_string,parse_string,tls_config}.go
)

need go 'install the version of go.mod'
mapfile -t ours < <(cd "$here" && find run.sh testdata -type f | sort)
if tools keda "${ours[@]}"; then
	fresh
	got=$(cd "$dir" && GOFLAGS=-mod=mod go mod download -json "github.com/kedacore/keda/v2@$version")
	[[ $got == *"\"$sum\""* ]] || {
		echo "keda $version has another sum than $sum: $got" >&2
		exit 1
	}
	keda=$(sed -n 's/^.*"Dir": "\(.*\)".*$/\1/p' <<<"$got")
	cp -r "$here/testdata/overlay" "$dir/src"
	mkdir "$dir/src/pkg" "$dir/src/controller-runtime/pkg"
	mv "$dir"/src/{metricscollector,scalers} "$dir/src/pkg/"
	mv "$dir/src/controller-runtime/log" "$dir/src/controller-runtime/pkg/"
	for f in "${files[@]}"; do
		install -D -m 644 "$keda/$f" "$dir/src/$f"
	done
	cd "$dir/src"
	for f in $(find . -name 'module.*'); do
		mv "$f" "${f/module./go.}"
	done
	go build -mod=readonly -o "$dir/flow" ./flow >&2
	filled
fi
installed "$@"

export SSL_CERT_FILE=$BUSBAR_CA NO_PROXY=localhost,127.0.0.1 KEDA_VERSION=$version
exec "$dir/flow"
