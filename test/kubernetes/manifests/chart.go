package manifests

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// Render renders the chart for a release in a namespace and decodes its objects. values are YAML, as in a user's values
// file.
func Render(chart, release, namespace, values string) (*Set, error) {
	c, err := loader.Load(chart)
	if err != nil {
		return nil, err
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{
		Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return nil, err
	}
	s := New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) != ".yaml" || strings.TrimSpace(files[name]) == "" {
			continue
		}
		if err := s.DecodeFile([]byte(files[name])); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", name, err, files[name])
		}
	}
	return s, nil
}
