// Package schema compares the JSON Schemas that `busbar config schema` prints with what the program takes. A library of
// others judges by the schemas, the program and its packages judge by themselves, and the two must agree.
//
//   - entities_test.go: files of entities
//   - settings_test.go: the configuration file
//   - kit_test.go: what both need
package schema
