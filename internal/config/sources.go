package config

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

const envPrefix = "SPILLWAY_"

// origin is where a value came from.
type origin struct {
	place string // "--listen", "SPILLWAY_LISTEN" or "conf.yaml:3"
	key   string // in the file; empty: the place is no file
}

// refuse is an error about a value, with the remedy. It names other settings as they are named
// where the value came from.
func (o *Settings) refuse(from origin, value, remedy string) error {
	if from.key == "" {
		return fmt.Errorf("%s=%s: %s", from.place, value, remedy)
	}
	return fmt.Errorf("%s: %s: %s: %s", from.place, from.key, value, o.inKeys(remedy))
}

// inKeys names the settings in a text as a configuration file does: "watchRBAC: true" for
// --watch-rbac=true.
func (o *Settings) inKeys(text string) string {
	return flagWithSign.ReplaceAllStringFunc(text, func(found string) string {
		flag, isSet := strings.CutSuffix(found, "=")
		s := o.row(strings.TrimPrefix(flag, "--"))
		switch {
		case s == nil || s.key() == "":
			return found
		case isSet:
			return s.key() + ": "
		}
		return s.key()
	})
}

var flagWithSign = regexp.MustCompile(`--[a-z0-9-]+=?`)

// row is the row of a flag, or nil.
func (o *Settings) row(flag string) *setting {
	at := slices.IndexFunc(o.rows, func(s *setting) bool { return s.name == flag })
	if at < 0 {
		return nil
	}
	return o.rows[at]
}

// Complete sets the flags that the command line left alone: from the environment, else from the
// configuration file. It must be called once, after the command line was parsed.
func (o *Settings) Complete(environ []string) error {
	if err := o.readEnvironment(environ); err != nil {
		return err
	}
	if o.ConfigFile == "" {
		return nil
	}
	entries, err := readConfigFile(o.ConfigFile)
	var unreadable *fs.PathError
	if errors.As(err, &unreadable) {
		return o.Refuse("config", o.ConfigFile, "cannot be read: "+Cause(err))
	}
	if err != nil {
		return err
	}
	return o.readEntries(o.ConfigFile, entries)
}

// readEnvironment sets flags from SPILLWAY_* variables. A variable that is set but empty counts: it
// is how a listener is switched off.
func (o *Settings) readEnvironment(environ []string) error {
	environ = slices.Sorted(slices.Values(environ)) // of several mistakes, always the same one is named
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, envPrefix) || isServiceVariable(name, value) {
			continue
		}
		at := slices.IndexFunc(o.rows, func(s *setting) bool { return s.variable() == name })
		if at < 0 {
			return fmt.Errorf("%s: no such setting; %s", name, o.variableMeant(name))
		}
		if f := o.flags.Lookup(o.rows[at].name); !f.Changed {
			if err := o.set(f, origin{place: name}, value); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *Settings) set(f *pflag.Flag, from origin, value string) error {
	o.origins[f.Name] = from
	err := o.flags.Set(f.Name, value)
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return o.refuse(from, value, expected(invalid))
	}
	return err
}

// originOf returns where the value of a flag came from. A default is shown as if the command line
// had it.
func (o *Settings) originOf(flag string) origin {
	if from, ok := o.origins[flag]; ok {
		return from
	}
	return origin{place: "--" + flag}
}

// isServiceVariable reports whether the kubelet made this variable for a Service whose name begins
// with "spillway". Every pod in the Service's namespace gets such variables, spillway's own
// included.
func isServiceVariable(name, value string) bool {
	if serviceVariable.MatchString(name) {
		return true
	}
	return strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

var serviceVariable = regexp.MustCompile(
	`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// variableMeant is what may help against a variable that no setting has.
func (o *Settings) variableMeant(name string) string {
	given := strings.ToLower(strings.TrimPrefix(name, envPrefix))
	if near := o.row(nearest(given, flagNames(o.flags))); near != nil {
		return "did you mean " + near.variable() + "?"
	}
	return "unset it; spillway --help=all lists all names"
}
