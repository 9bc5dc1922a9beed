package permissions

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/controlplane"
)

const read = "get,list,watch"

// users have tokens, and these rights.
var users = map[controlplane.User][]authcluster.Right{
	"nothing":      nil,
	"cm":           {authcluster.Everywhere(authcluster.Rule(read, "", "configmaps"))},
	"cm-red":       {authcluster.In("red", authcluster.Rule(read, "", "configmaps"))},
	"cm-get-red":   {authcluster.In("red", authcluster.Rule("get", "", "configmaps"))},
	"cm-list-red":  {authcluster.In("red", authcluster.Rule("list", "", "configmaps"))},
	"cm-watch-red": {authcluster.In("red", authcluster.Rule("watch", "", "configmaps"))},
	"cm-list":      {authcluster.Everywhere(authcluster.Rule("list", "", "configmaps"))},
	"cm-watch":     {authcluster.Everywhere(authcluster.Rule("watch", "", "configmaps"))},
	"cm-a-red":     {authcluster.In("red", authcluster.Rule(read, "", "configmaps", "a"))},
	"cm-a":         {authcluster.Everywhere(authcluster.Rule(read, "", "configmaps", "a"))},
	"cm-list-b": {authcluster.In("red", authcluster.Rule("list,watch", "", "configmaps", "b")),
		authcluster.In("blue", authcluster.Rule("list,watch", "", "configmaps", "b"))},
	"cm-red-blue-a": {authcluster.In("red", authcluster.Rule(read, "", "configmaps")),
		authcluster.In("blue", authcluster.Rule(read, "", "configmaps", "a"))},
	"pods-red":    {authcluster.In("red", authcluster.Rule(read, "", "pods"))},
	"pods-log":    {authcluster.In("red", authcluster.Rule("get", "", "pods/log"))},
	"pods-status": {authcluster.In("red", authcluster.Rule("get,patch,update", "", "pods/status"))},
	"pods-sub":    {authcluster.Everywhere(authcluster.Rule("*", "", "pods/*"))},
	"pods-exec": {
		authcluster.In("red", authcluster.Rule("create,get", "", "pods/exec,pods/attach,pods/portforward,pods/proxy")),
	},
	"nodes":         {authcluster.Everywhere(authcluster.Rule(read, "", "nodes"))},
	"nodes-n1":      {authcluster.Everywhere(authcluster.Rule(read, "", "nodes", "n1"))},
	"namespaces":    {authcluster.Everywhere(authcluster.Rule(read, "", "namespaces"))},
	"namespace-red": {authcluster.In("red", authcluster.Rule("get,list", "", "namespaces"))},
	"deploy-red":    {authcluster.In("red", authcluster.Rule(read, "apps", "deployments"))},
	"scale-red":     {authcluster.In("red", authcluster.Rule("get,update,patch", "apps", "deployments/scale"))},
	"apps":          {authcluster.Everywhere(authcluster.Rule("*", "apps", "*"))},
	"all-red":       {authcluster.In("red", authcluster.Rule("*", "*", "*"))},
	"all":           {authcluster.Everywhere(authcluster.Rule("*", "*", "*"))},
	"secrets-red":   {authcluster.In("red", authcluster.Rule(read, "", "secrets"))},
	"secrets-list":  {authcluster.Everywhere(authcluster.Rule("list", "", "secrets"))},
	"gems":          {authcluster.Everywhere(authcluster.Rule(read, gemGroup, "gems"))},
	"gems-a-red":    {authcluster.In("red", authcluster.Rule(read, gemGroup, "gems", "a"))},
	"writes-red": {
		authcluster.In("red", authcluster.Rule("create,update,patch,delete,deletecollection", "", "configmaps")),
	},
	"deletes-a": {authcluster.In("red", authcluster.Rule("delete", "", "configmaps", "a"))},
	"health":    {authcluster.Everywhere(authcluster.Paths("get", "/healthz", "/livez/*"))},
	"paths":     {authcluster.Everywhere(authcluster.Paths("*", "*"))},
	"other-group": {authcluster.Everywhere(authcluster.Rule(read, "extensions", "deployments"),
		authcluster.Rule(read, "apps", "configmaps"), authcluster.Rule(read, "", "gems"))},
	"green":         {authcluster.In("green", authcluster.Rule(read, "*", "*"))},
	"in-readers":    nil,
	"in-two-groups": {authcluster.In("blue", authcluster.Rule("get", "", "configmaps"))},
	"in-masters":    nil,
	"impersonates": {authcluster.Everywhere(rbacv1.PolicyRule{Verbs: []string{"impersonate"}, APIGroups: []string{""},
		Resources: []string{"users"}, ResourceNames: []string{"cm-red"}})},
	"reads-reviews": {authcluster.Everywhere(authcluster.Rule("create", "authentication.k8s.io", "tokenreviews"),
		authcluster.Rule("create", "authorization.k8s.io", "subjectaccessreviews"))},
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
	authcluster.User
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

// lent is the same, in front of the proxy that impersonates.
func (p identity) lent() identity {
	p.Name += ", impersonated"
	p.byLender = true
	return p
}

// populate gives every user its rights, and returns the users.
func populate(t *testing.T, c *authcluster.Cluster) []identity {
	t.Helper()
	c.GrantTo(t, authcluster.Group("readers"), authcluster.Everywhere(authcluster.Rule(read, "", "configmaps,pods")))
	c.GrantTo(t, authcluster.Group("watchers"), authcluster.In("red", authcluster.Rule("watch", "", "secrets")))
	c.GrantTo(
		t,
		authcluster.Group("system:serviceaccounts:blue"),
		authcluster.In("red", authcluster.Rule("list", "", "pods")),
	)
	c.GrantTo(
		t,
		authcluster.Anonymous().Subject,
		authcluster.In("green", authcluster.Rule("get,list,watch", "", "configmaps")),
	)
	var all []identity
	add := func(p authcluster.User, rights ...authcluster.Right) {
		c.Grant(t, p, rights...)
		all = append(all, identity{User: p, unforwardable: len(p.Certificates) > 0, unlendable: p.Name == "cert-master"})
	}
	for name, rights := range users {
		add(c.User(name), rights...)
	}
	add(c.ServiceAccount(t, "red", "reads", 0), authcluster.In("red", authcluster.Rule(read, "", "configmaps,pods")))
	add(c.ServiceAccount(t, "red", "nothing", 0))
	add(c.ServiceAccount(t, "blue", "by-group", 0), authcluster.In("blue", authcluster.Rule(read, "", "secrets")))
	add(c.ServiceAccount(t, "blue", "reads-one", 0), authcluster.In("blue", authcluster.Rule(read, "", "configmaps", "d")))
	add(c.ServiceAccount(t, "green", "reads-all", 0), authcluster.Everywhere(authcluster.Rule(read, "*", "*")))

	add(c.Certified(t, "cert-nothing"))
	add(c.Certified(t, "cert-cm-red"), authcluster.In("red", authcluster.Rule(read, "", "configmaps")))
	add(c.Certified(t, "cert-pods"), authcluster.Everywhere(authcluster.Rule(read, "", "pods")))
	add(c.Certified(t, "cert-reader", "readers"))
	add(c.Certified(t, "cert-master", "system:masters"))
	add(c.Certified(t, `eve<&>"'`), authcluster.In("red", authcluster.Rule("list", "", "configmaps")))
	add(c.Vouched(t, authcluster.FrontName, "vouched-nothing"))
	add(
		c.Vouched(t, authcluster.FrontName, "vouched-cm-red"),
		authcluster.In("red", authcluster.Rule(read, "", "configmaps")),
	)
	add(c.Vouched(t, authcluster.FrontName, "vouched-reader", "readers"))

	all = append(all, impersonators(c)...)
	return append(all, strangers(t, c)...)
}

// impersonators send requests as another user, with the right to it or without.
func impersonators(c *authcluster.Cluster) []identity {
	as := func(by controlplane.User, header http.Header) identity {
		p := c.User(by)
		p.Name = string(by) + " as " + strings.Join(header["Impersonate-User"], "")
		for name, values := range header {
			p.Header[name] = values
		}
		return identity{User: p}
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
func strangers(t *testing.T, c *authcluster.Cluster) []identity {
	t.Helper()
	good := strings.TrimPrefix(c.User("all").Header.Get("Authorization"), "Bearer ")
	raw := func(name string, values ...string) identity {
		return identity{User: authcluster.User{Name: name, Header: http.Header{"Authorization": values}}}
	}
	token := c.Token(t, "green", "reads-all", 0)
	stolen := c.Certified(t, "a certificate and the token of another")
	stolen.Header = c.User("cm-red").Header
	wrongFront := c.Vouched(t, "not-"+authcluster.FrontName, "vouched for by a stranger", "system:masters")
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
	unproven := func(p authcluster.User) identity { return identity{User: p, unforwardable: true, unproven: true} }
	return []identity{
		{User: authcluster.Anonymous()},
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
		{User: claims},
		{User: stolen, unforwardable: true, unlendable: true}, {User: unvouched, unforwardable: true},
		unproven(wrongFront),
		unproven(authcluster.WithCertificate(t, "an expired certificate", expired)),
		unproven(authcluster.WithCertificate(t, "a certificate of another authority", unknown)),
	}
}
