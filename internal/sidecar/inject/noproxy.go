package inject

import (
	"fmt"
	"slices"
	"strings"
)

// proxyVariables are the variables that name a proxy. Programs, except those in Go, then send it
// also requests for loopback, unless exceptVariables name that.
var (
	proxyVariables  = []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"}
	exceptVariables = []string{"NO_PROXY", "no_proxy"}
)

// excepted is what injection adds to NO_PROXY. Remove finds it by its last name, which no host can
// have (RFC 6761).
const (
	excepted   = loopback + ",localhost," + exceptMark
	exceptMark = "spillway.localhost"
)

// exceptLoopback has a container's programs reach the sidecar directly: it adds loopback to values
// of NO_PROXY, or returns the variables to add. If values come from elsewhere, it can only note
// that.
func (p *planner) exceptLoopback(container string, c *PodContainer) []Variable {
	if !slices.ContainsFunc(c.Env, func(v Variable) bool { return slices.Contains(proxyVariables, v.Name) }) {
		return nil
	}
	isSet := false
	for i, v := range c.Env {
		if !slices.Contains(exceptVariables, v.Name) {
			continue
		}
		isSet = true
		switch {
		case v.ValueFrom != nil:
			p.addNote("container %s has a proxy and takes %s from elsewhere: it must name %s, or the container's programs may "+
				"ask the proxy for the sidecar", c.Name, v.Name, loopback)
		case !hasLoopback(v.Value):
			p.patch = append(p.patch, Operation{"replace", fmt.Sprintf("%s/env/%d/value", container, i),
				v.Value + "," + excepted})
		}
	}
	if isSet {
		return nil
	}
	if len(c.EnvFrom) > 0 {
		p.addNote("container %s has a proxy and variables from elsewhere (envFrom): NO_PROXY must be among them and name "+
			"%s, or the container's programs may ask the proxy for the sidecar", c.Name, loopback)
		return nil
	}
	return []Variable{{Name: exceptVariables[0], Value: excepted}, {Name: exceptVariables[1], Value: excepted}}
}

// hasLoopback reports that a value of NO_PROXY has loopback in it.
func hasLoopback(value string) bool {
	for _, name := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || isSpace(r) }) {
		if name == "*" || name == loopback || name == "127.0.0.0/8" {
			return true
		}
	}
	return false
}
