package config

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Print writes the settings as a configuration file, and says in a comment where each value comes
// from. A default is a comment itself, because some settings follow the memory budget until they
// are set, even if to the default.
func (o *Settings) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n%s: %s\n\n", apiVersionKey, apiVersion, kindKey, fileKind)
	b.WriteString("# Defaults have a # in front of the key.\n")
	for _, g := range o.table() {
		heading := "\n# " + g.name + "\n"
		for _, s := range g.rows {
			if s.key() == "" {
				continue
			}
			line, err := o.line(s)
			if err != nil {
				return err
			}
			b.WriteString(heading + line + "\n")
			heading = ""
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// line is the setting as a line of a file.
func (o *Settings) line(s *setting) (string, error) {
	f := o.flags.Lookup(s.name)
	key := &yaml.Node{Kind: yaml.ScalarNode, Value: s.key()}
	value := &yaml.Node{Kind: yaml.ScalarNode, Value: f.Value.String()}
	switch v := s.value.(type) {
	case *[]string:
		value = &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, item := range *v {
			value.Content = append(value.Content, textNode(item))
		}
	case *string, *time.Duration:
		value = textNode(value.Value)
	}
	line, err := yaml.Marshal(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{key, value}})
	if err != nil {
		return "", o.Refuse(s.name, s.written(f), "cannot be written to a configuration file: "+err.Error())
	}
	text := strings.TrimSuffix(string(line), "\n")
	if !f.Changed {
		return "#" + text + " # default", nil
	}
	return text + " # " + inLine(o.originOf(s.name).place), nil
}

// textNode is a text that YAML reads as a text, in one line.
func textNode(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// inLine is a name that a comment may hold: the name of a file may have any bytes.
func inLine(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}
