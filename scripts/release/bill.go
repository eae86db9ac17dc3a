package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// bills writes for each program the modules that it is made of. The program itself says which they are.
func (r *release) bills() error {
	for _, p := range r.programs {
		info, err := buildinfo.ReadFile(p.path)
		if err != nil {
			return err
		}
		sum, err := sumOf(p.path)
		if err != nil {
			return err
		}
		bill := cyclonedx.NewBOM()
		main := cyclonedx.Component{
			BOMRef: "pkg:golang/" + info.Main.Path + "@" + r.number, Type: cyclonedx.ComponentTypeApplication, Name: "busbar", Version: r.number,
			PackageURL: "pkg:golang/" + info.Main.Path + "@" + r.number,
			Hashes:     &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: sum}},
			Licenses:   &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
			Properties: &[]cyclonedx.Property{{Name: "platform", Value: p.system + "/" + p.cpu}, {Name: "go", Value: info.GoVersion}},
		}
		bill.Metadata = &cyclonedx.Metadata{Timestamp: r.at.Format(time.RFC3339), Component: &main}
		components := []cyclonedx.Component{library("std", info.GoVersion, "")}
		refs := []string{components[0].BOMRef}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			c := library(m.Path, m.Version, m.Sum)
			components, refs = append(components, c), append(refs, c.BOMRef)
		}
		bill.Components = &components
		bill.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
		var out bytes.Buffer
		encoder := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON)
		if err := encoder.SetPretty(true).Encode(bill); err != nil {
			return fmt.Errorf("bill for %s/%s: %w", p.system, p.cpu, err)
		}
		if err := r.write(r.file(p, ".cdx.json"), out.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

func library(path, version, sum string) cyclonedx.Component {
	url := "pkg:golang/" + path + "@" + version
	c := cyclonedx.Component{BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
	if sum != "" {
		c.Properties = &[]cyclonedx.Property{{Name: "go.sum", Value: sum}}
	}
	return c
}
