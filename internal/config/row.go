package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// setting is one row of the table: all that is known of a setting.
type setting struct {
	name   string
	value  any      // the field that holds it, by pointer
	preset string   // the default, as a user writes it; empty: the zero value
	text   string   // what it does; the word in backquotes stands for the value
	common bool     // most users need it: --help shows it, and other settings only with --help=all
	words  []string // the only values that it may have
	// The least and the greatest value of a number, as a user writes them, and what 0 does, if it is
	// allowed. Every number has least or zero.
	least, most, zero string
	remedy            string // what may help against a value outside of these

	// How the memory budget bounds it, unless it is set: a size is at most the budget divided by
	// budgetShare, and a number is at most one for each budgetBytes of the budget. 0: not at all.
	budgetShare, budgetBytes int64

	needs    []string                // sentences with the flags that it requires: of each, one must be on
	excludes []string                // settings that it cannot be used with
	because  string                  // why not
	forTLS   bool                    // it requires a listener with TLS
	check    func(item string) error // of a value that is not empty, or of each item of a list
}

// declare adds the flag, and gives the field its default.
func (s *setting) declare(flags *pflag.FlagSet) {
	switch v := s.value.(type) {
	case *bool:
		flags.BoolVar(v, s.name, false, s.usage())
	case *int:
		flags.IntVar(v, s.name, 0, s.usage())
	case *float64:
		flags.Float64Var(v, s.name, 0, s.usage())
	case *time.Duration:
		flags.DurationVar(v, s.name, 0, s.usage())
	case *[]string:
		flags.StringSliceVar(v, s.name, strings.FieldsFunc(s.preset, func(r rune) bool { return r == ',' }), s.usage())
		return // after Set, a list that a user gives would be appended to the default
	case *ByteSize:
		flags.Var(v, s.name, s.usage())
	case *string:
		if s.words == nil {
			flags.StringVar(v, s.name, "", s.usage())
		} else {
			flags.Var(NewChoice(v, s.words...), s.name, s.usage())
		}
	}
	if s.preset == "" {
		return
	}
	f := flags.Lookup(s.name)
	if err := f.Value.Set(s.preset); err != nil {
		panic("default of --" + s.name + ": " + err.Error())
	}
	f.DefValue = f.Value.String()
}

// usage is the help text of the flag.
func (s *setting) usage() string {
	text := s.text
	bounds := strings.TrimPrefix(strings.TrimPrefix(s.bounds(), "must not be negative; "), "must be ")
	if bounds != "" {
		text += " " + strings.ToUpper(bounds[:1]) + bounds[1:] + "."
	}
	if s.budgetShare > 0 {
		text += fmt.Sprintf(" Unless this flag is set, at most 1/%d of --memory-budget.", s.budgetShare)
	}
	if s.budgetBytes > 0 {
		text += fmt.Sprintf(" Unless this flag is set, at most one for each %d KiB of --memory-budget.", s.budgetBytes>>10)
	}
	if len(s.needs) > 0 {
		text += " Requires " + strings.Join(s.needs, ", and ") + "."
	}
	if s.forTLS {
		text += " Requires " + listenerWithTLS + "."
	}
	return text
}

const listenerWithTLS = "--listen-tls, or --metrics-listen on an address that is not loopback"

// bounds is the part of a message that says which values a number may have; empty: it is no number.
func (s *setting) bounds() string {
	zero := "0"
	if _, ok := s.value.(*time.Duration); ok {
		zero = "0s"
	}
	switch {
	case s.least != "" && s.zero != "":
		return "must be at least " + s.least + ", or " + zero + ", which " + s.zero
	case s.least != "":
		return "must be at least " + s.least
	case s.most != "":
		return "must be from 0 to " + s.most + "; " + zero + " " + s.zero
	case s.zero != "":
		return "must not be negative; " + zero + " " + s.zero
	}
	return ""
}

// isWithin reports whether a number has a value that bounds allows.
func (s *setting) isWithin(value string) bool {
	n := measure(value)
	return s.zero != "" && n == 0 || n >= measure(s.least) && (s.most == "" || n <= measure(s.most))
}

// measure is the size of a number, a duration or a number of bytes; 0 if it is empty.
func measure(text string) float64 {
	if d, err := time.ParseDuration(text); err == nil {
		return float64(d)
	}
	var b ByteSize
	if b.Set(text) == nil {
		return float64(b)
	}
	n, _ := strconv.ParseFloat(text, 64)
	return n
}

// written is the value as a user writes it.
func (s *setting) written(f *pflag.Flag) string {
	if list, ok := s.value.(*[]string); ok {
		return strings.Join(*list, ",")
	}
	return f.Value.String()
}

// validateRow refuses a number out of its bounds, and a setting without those that it requires or
// with one that it excludes.
func (o *Settings) validateRow(s *setting) error {
	f := o.flags.Lookup(s.name)
	if bounds := s.bounds(); bounds != "" && !s.isWithin(f.Value.String()) {
		if s.remedy != "" {
			bounds += "; " + s.remedy
		}
		if f.Value.Type() == "bytes" {
			bounds += "; is the unit missing, as in 512Mi?"
		}
		return o.Refuse(s.name, s.written(f), bounds)
	}
	if f.Value.String() == f.DefValue {
		return nil
	}
	for _, need := range s.needs {
		isOn := func(flag []string) bool { return o.isOn(flag[1], flag[2]) }
		if !slices.ContainsFunc(flagInText.FindAllStringSubmatch(need, -1), isOn) {
			return o.Refuse(s.name, s.written(f), "requires "+need)
		}
	}
	if s.forTLS && o.ListenTLS == "" && !o.UsesMetricsTLS() {
		return o.Refuse(s.name, s.written(f), "requires "+listenerWithTLS)
	}
	for _, other := range s.excludes {
		if o.isChosen(other) {
			return o.Refuse(s.name, s.written(f), "cannot be used with --"+other+", because "+s.because)
		}
	}
	return nil
}

// flagInText finds the flags that needs name, and the values that they must have, if these are
// named: --listen-tls, or --listen-identity=self.
var flagInText = regexp.MustCompile(`--([a-z0-9-]+)(?:=([a-z-]+))?`)

// isOn reports whether a flag has the value wanted. If that is empty, every value will do that
// switches something on.
func (o *Settings) isOn(name, wanted string) bool {
	value := o.flags.Lookup(name).Value.String()
	if wanted != "" {
		return value == wanted
	}
	return !slices.Contains([]string{"", "[]", "0", "false"}, value)
}

// isChosen reports whether a setting is not its default.
func (o *Settings) isChosen(name string) bool {
	f := o.flags.Lookup(name)
	return f.Value.String() != f.DefValue
}

// validateItems checks the value, or each item of a list, and trims spaces around the items.
func (o *Settings) validateItems(s *setting) error {
	if s.check == nil {
		return nil
	}
	value := s.written(o.flags.Lookup(s.name))
	items := []string{value}
	if list, ok := s.value.(*[]string); ok {
		items = *list
	} else if value == "" {
		return nil
	}
	for i, item := range items {
		items[i] = strings.TrimSpace(item)
		if err := s.check(items[i]); err != nil {
			return o.Refuse(s.name, cmp.Or(items[i], value), err.Error())
		}
	}
	return nil
}
