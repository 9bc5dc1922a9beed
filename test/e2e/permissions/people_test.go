package permissions

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/crowd"
)

const read = "get,list,watch"

// users have tokens, and these rights.
var users = map[controlplane.User][]crowd.Right{
	"nothing":      nil,
	"cm":           {crowd.Everywhere(crowd.Rule(read, "", "configmaps"))},
	"cm-red":       {crowd.In("red", crowd.Rule(read, "", "configmaps"))},
	"cm-get-red":   {crowd.In("red", crowd.Rule("get", "", "configmaps"))},
	"cm-list-red":  {crowd.In("red", crowd.Rule("list", "", "configmaps"))},
	"cm-watch-red": {crowd.In("red", crowd.Rule("watch", "", "configmaps"))},
	"cm-list":      {crowd.Everywhere(crowd.Rule("list", "", "configmaps"))},
	"cm-watch":     {crowd.Everywhere(crowd.Rule("watch", "", "configmaps"))},
	"cm-a-red":     {crowd.In("red", crowd.Rule(read, "", "configmaps", "a"))},
	"cm-a":         {crowd.Everywhere(crowd.Rule(read, "", "configmaps", "a"))},
	"cm-list-b": {crowd.In("red", crowd.Rule("list,watch", "", "configmaps", "b")),
		crowd.In("blue", crowd.Rule("list,watch", "", "configmaps", "b"))},
	"cm-red-blue-a": {crowd.In("red", crowd.Rule(read, "", "configmaps")),
		crowd.In("blue", crowd.Rule(read, "", "configmaps", "a"))},
	"pods-red":      {crowd.In("red", crowd.Rule(read, "", "pods"))},
	"pods-log":      {crowd.In("red", crowd.Rule("get", "", "pods/log"))},
	"pods-status":   {crowd.In("red", crowd.Rule("get,patch,update", "", "pods/status"))},
	"pods-sub":      {crowd.Everywhere(crowd.Rule("*", "", "pods/*"))},
	"pods-exec":     {crowd.In("red", crowd.Rule("create,get", "", "pods/exec,pods/attach,pods/portforward,pods/proxy"))},
	"nodes":         {crowd.Everywhere(crowd.Rule(read, "", "nodes"))},
	"nodes-n1":      {crowd.Everywhere(crowd.Rule(read, "", "nodes", "n1"))},
	"namespaces":    {crowd.Everywhere(crowd.Rule(read, "", "namespaces"))},
	"namespace-red": {crowd.In("red", crowd.Rule("get,list", "", "namespaces"))},
	"deploy-red":    {crowd.In("red", crowd.Rule(read, "apps", "deployments"))},
	"scale-red":     {crowd.In("red", crowd.Rule("get,update,patch", "apps", "deployments/scale"))},
	"apps":          {crowd.Everywhere(crowd.Rule("*", "apps", "*"))},
	"all-red":       {crowd.In("red", crowd.Rule("*", "*", "*"))},
	"all":           {crowd.Everywhere(crowd.Rule("*", "*", "*"))},
	"secrets-red":   {crowd.In("red", crowd.Rule(read, "", "secrets"))},
	"secrets-list":  {crowd.Everywhere(crowd.Rule("list", "", "secrets"))},
	"gems":          {crowd.Everywhere(crowd.Rule(read, gemGroup, "gems"))},
	"gems-a-red":    {crowd.In("red", crowd.Rule(read, gemGroup, "gems", "a"))},
	"writes-red":    {crowd.In("red", crowd.Rule("create,update,patch,delete,deletecollection", "", "configmaps"))},
	"deletes-a":     {crowd.In("red", crowd.Rule("delete", "", "configmaps", "a"))},
	"health":        {crowd.Everywhere(crowd.Paths("get", "/healthz", "/livez/*"))},
	"paths":         {crowd.Everywhere(crowd.Paths("*", "*"))},
	"other-group": {crowd.Everywhere(crowd.Rule(read, "extensions", "deployments"),
		crowd.Rule(read, "apps", "configmaps"), crowd.Rule(read, "", "gems"))},
	"green":         {crowd.In("green", crowd.Rule(read, "*", "*"))},
	"in-readers":    nil,
	"in-two-groups": {crowd.In("blue", crowd.Rule("get", "", "configmaps"))},
	"in-masters":    nil,
	"impersonates": {crowd.Everywhere(rbacv1.PolicyRule{Verbs: []string{"impersonate"}, APIGroups: []string{""},
		Resources: []string{"users"}, ResourceNames: []string{"cm-red"}})},
	"reads-reviews": {crowd.Everywhere(crowd.Rule("create", "authentication.k8s.io", "tokenreviews"),
		crowd.Rule("create", "authorization.k8s.io", "subjectaccessreviews"))},
}

// groups are those that users are in. What the first two may do is bound to them.
var groups = map[controlplane.User][]string{
	"in-readers": {"readers"}, "in-two-groups": {"readers", "watchers"}, "in-masters": {"system:masters"},
}

func tokenUsers() map[controlplane.User][]string {
	all := map[controlplane.User][]string{"impersonator": nil}
	for user := range users {
		all[user] = groups[user]
	}
	return all
}

// identity is one row of the matrix: a user with credentials.
type identity struct {
	crowd.Person
	// unforwardable: upstream cannot be shown the credentials.
	unforwardable bool
	// byLender: requests go to the proxy that may impersonate the user for that. unlendable: and does
	// not.
	byLender, unlendable bool
	// never looks for what none of the answers may show; nil: nothing.
	never func(received []byte) error
	// unproven: the certificate is no good.
	unproven bool
}

// lent is the same, before the proxy that impersonates.
func (p identity) lent() identity {
	p.Name += ", impersonated"
	p.byLender = true
	return p
}

// populate gives every user its rights, and returns the users.
func populate(t *testing.T, c *crowd.Cluster) []identity {
	t.Helper()
	c.GrantTo(t, crowd.Group("readers"), crowd.Everywhere(crowd.Rule(read, "", "configmaps,pods")))
	c.GrantTo(t, crowd.Group("watchers"), crowd.In("red", crowd.Rule("watch", "", "secrets")))
	c.GrantTo(t, crowd.Group("system:serviceaccounts:blue"), crowd.In("red", crowd.Rule("list", "", "pods")))
	c.GrantTo(t, crowd.Anonymous().Subject, crowd.In("green", crowd.Rule("get,list,watch", "", "configmaps")))
	var all []identity
	add := func(p crowd.Person, rights ...crowd.Right) {
		c.Grant(t, p, rights...)
		all = append(all, identity{Person: p, unforwardable: len(p.Certificates) > 0, unlendable: p.Name == "cert-master"})
	}
	for name, rights := range users {
		add(c.User(name), rights...)
	}
	add(c.ServiceAccount(t, "red", "reads", 0), crowd.In("red", crowd.Rule(read, "", "configmaps,pods")))
	add(c.ServiceAccount(t, "red", "nothing", 0))
	add(c.ServiceAccount(t, "blue", "by-group", 0), crowd.In("blue", crowd.Rule(read, "", "secrets")))
	add(c.ServiceAccount(t, "blue", "reads-one", 0), crowd.In("blue", crowd.Rule(read, "", "configmaps", "d")))
	add(c.ServiceAccount(t, "green", "reads-all", 0), crowd.Everywhere(crowd.Rule(read, "*", "*")))

	add(c.Certified(t, "cert-nothing"))
	add(c.Certified(t, "cert-cm-red"), crowd.In("red", crowd.Rule(read, "", "configmaps")))
	add(c.Certified(t, "cert-pods"), crowd.Everywhere(crowd.Rule(read, "", "pods")))
	add(c.Certified(t, "cert-reader", "readers"))
	add(c.Certified(t, "cert-master", "system:masters"))
	add(c.Certified(t, `eve<&>"'`), crowd.In("red", crowd.Rule("list", "", "configmaps")))
	add(c.Vouched(t, crowd.FrontName, "vouched-nothing"))
	add(c.Vouched(t, crowd.FrontName, "vouched-cm-red"), crowd.In("red", crowd.Rule(read, "", "configmaps")))
	add(c.Vouched(t, crowd.FrontName, "vouched-reader", "readers"))

	all = append(all, impersonators(c)...)
	return append(all, strangers(t, c)...)
}

// impersonators send requests as another user, with the right to it or without.
func impersonators(c *crowd.Cluster) []identity {
	as := func(by controlplane.User, header http.Header) identity {
		p := c.User(by)
		p.Name = string(by) + " as " + strings.Join(header["Impersonate-User"], "")
		for name, values := range header {
			p.Header[name] = values
		}
		return identity{Person: p}
	}
	return []identity{
		as("in-masters", http.Header{"Impersonate-User": {"cm-red"}}),
		as("in-masters", http.Header{"Impersonate-User": {"x"}, "Impersonate-Group": {"readers", "system:authenticated"},
			"Impersonate-Extra-Scopes": {"a"}}),
		as("in-masters", http.Header{"Impersonate-Group": {"readers"}}),
		as("impersonates", http.Header{"Impersonate-User": {"cm-red"}}),
		as("impersonates", http.Header{"Impersonate-User": {"all"}}),
		as("nothing", http.Header{"Impersonate-User": {"all"}}),
		as("cm", http.Header{"Impersonate-User": {"system:anonymous"}}),
	}
}

// strangers show nothing, or nothing that is any good.
func strangers(t *testing.T, c *crowd.Cluster) []identity {
	t.Helper()
	good := strings.TrimPrefix(c.User("all").Header.Get("Authorization"), "Bearer ")
	raw := func(name string, values ...string) identity {
		return identity{Person: crowd.Person{Name: name, Header: http.Header{"Authorization": values}}}
	}
	token := c.Token(t, "green", "reads-all", 0)
	stolen := c.Certified(t, "a certificate and the token of another")
	stolen.Header = c.User("cm-red").Header
	wrongFront := c.Vouched(t, "not-"+crowd.FrontName, "vouched for by a stranger", "system:masters")
	unvouched := c.Certified(t, "cert-claims")
	unvouched.Header = http.Header{"X-Remote-User": {"all"}, "X-Remote-Group": {"system:masters"}}
	claims := c.User("nothing")
	claims.Name, claims.Header = "nothing, who claims", claims.Header.Clone()
	claims.Header.Set("X-Remote-User", "all")
	claims.Header.Set("X-Remote-Group", "system:masters")
	expired, err := c.Clients.IssueClientUntil(time.Now().Add(-time.Hour), "all", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	others, err := controlplane.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := others.IssueClient("all", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	unproven := func(p crowd.Person) identity { return identity{Person: p, unforwardable: true, unproven: true} }
	return []identity{
		{Person: crowd.Anonymous()},
		raw("a token of nobody's", "Bearer "+rand.Text()),
		raw("an expired token", "Bearer "+c.Expire(t, token, time.Now().Add(-time.Hour))),
		raw("a token signed by another", "Bearer "+token[:len(token)-8]+"AAAAAAAA"),
		raw("a token for another audience", "Bearer "+c.Token(t, "green", "reads-all", 0, "elsewhere")),
		raw("another scheme", "Basic "+base64.StdEncoding.EncodeToString([]byte("all:"+good))),
		raw("no token", "Bearer "),
		raw("no scheme", good),
		raw("two tokens, the first good", "Bearer "+good, "Bearer "+rand.Text()),
		raw("two tokens, the second good", "Bearer "+rand.Text(), "Bearer "+good),
		raw("a token, and more", "Bearer "+good+" more"),
		{Person: claims},
		{Person: stolen, unforwardable: true, unlendable: true}, {Person: unvouched, unforwardable: true},
		unproven(wrongFront),
		unproven(crowd.WithCertificate(t, "an expired certificate", expired)),
		unproven(crowd.WithCertificate(t, "a certificate of another authority", unknown)),
	}
}
