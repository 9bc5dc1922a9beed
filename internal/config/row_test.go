package config

import "testing"

// A row that lacks something would be found by the user that sets it.
func TestEveryRowIsComplete(t *testing.T) {
	o := New()
	for _, s := range o.rows {
		f := o.flags.Lookup(s.name)
		switch f.Value.Type() {
		case "int", "float64", "duration", "bytes":
			if s.least == "" && s.zero == "" || !s.isWithin(f.DefValue) {
				t.Errorf("%s: from %q, 0 %q, but by default %s", s.name, s.least, s.zero, f.DefValue)
			}
		default:
			if s.budgetShare+s.budgetBytes > 0 {
				t.Errorf("%s is no number, but bounded by the budget", s.name)
			}
			if s.bounds() != "" {
				t.Errorf("%s is no number, but %s", s.name, s.bounds())
			}
		}
		if err := o.validateItems(s); err != nil {
			t.Error(err)
		}
		if len(s.excludes) > 0 && s.because == "" {
			t.Errorf("%s does not say why it excludes others", s.name)
		}
		named := s.excludes
		for _, need := range s.needs {
			flags := flagInText.FindAllStringSubmatch(need, -1)
			if len(flags) == 0 {
				t.Errorf("%s requires no flag: %s", s.name, need)
			}
			for _, flag := range flags {
				named = append(named, flag[1])
			}
		}
		for _, name := range named {
			if o.flags.Lookup(name) == nil {
				t.Errorf("%s names --%s, which is no flag", s.name, name)
			}
		}
	}
}
