package entities

import (
	"errors"

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
)

// Check has every entity and rule of a file judged, and returns all faults with line and pointer. judge says what the
// broker would say to a creation; an error of another code than [exit.Usage] ends the check.
func Check(all []Spec, judge func(path, element, inner string) error) error {
	var faults []error
	wrong := func(at place, err error) (bool, error) {
		if err == nil {
			return false, nil
		}
		if exit.Code(err) != exit.Usage {
			return true, at.errorf("%w", err)
		}
		faults = append(faults, at.errorf("%w", err))
		return true, nil
	}
	for _, e := range all {
		element := e.kind + "Description"
		whole := e
		whole.rules = nil
		if err := judge(e.path, element, elementsOf(whole)); err != nil {
			alone := false
			for _, p := range e.props { // a property that is wrong by itself is named by its own place
				bad, fatal := wrong(p.place, judge(e.path, element, elements([]Property{p.Property}, "")))
				if fatal != nil {
					return fatal
				}
				alone = alone || bad
			}
			if !alone {
				if _, fatal := wrong(e.place, err); fatal != nil {
					return fatal
				}
			}
		}
		for _, r := range e.rules {
			if _, fatal := wrong(r.place, judge(e.path+"/Rules/"+r.Name, ruleElement, r.XML())); fatal != nil {
				return fatal
			}
		}
	}
	if len(faults) > 0 {
		return exit.With(exit.Usage, errors.Join(faults...))
	}
	return nil
}
