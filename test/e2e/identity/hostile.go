package identity

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// root and roots are a user and a group that may do everything. mallory may do nothing.
const (
	root    = "root"
	roots   = "roots"
	masters = "system:masters"
	mallory = "mallory"
)

// field is a header of a front proxy.
type field struct{ name, value string }

// hostile is an identity whose bytes an HTTP header may change.
type hostile struct {
	name string
	// subject is that of a certificate. Without one, a front proxy vouches in fields.
	subject *pkix.Name
	fields  []field
	// texts are all values that a header would have to carry.
	texts []string
	// unnamed: the API server would add a group that the identity is not in.
	unnamed bool
	// right is what a binding names to give the identity all rights; nil: it has none.
	right *rbacv1.Subject
}

func (h hostile) String() string { return h.name }

// arriving are the values as a server reads them. HTTP/1.1 drops blanks around those of a front
// proxy's headers.
func (h hostile) arriving(http2 bool) []string {
	if h.subject != nil || http2 {
		return h.texts
	}
	trimmed := make([]string, len(h.texts))
	for i, text := range h.texts {
		trimmed[i] = strings.Trim(text, " \t")
	}
	return trimmed
}

// malformed reports that no request can bring the identity: a header of a front proxy has a control
// character.
func (h hostile) malformed() bool { return h.subject == nil && controls(h.texts) }

// carriable reports that a header carries the identity on to upstream.
func (h hostile) carriable(http2 bool) bool {
	texts := h.arriving(http2)
	for _, text := range texts {
		if strings.Trim(text, " \t") != text {
			return false
		}
	}
	return !controls(texts) && !h.unnamed
}

func controls(texts []string) bool {
	return strings.ContainsFunc(strings.Join(texts, ""), func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

// lossy are forms of a name that a header cannot carry.
func lossy(name string) []string {
	return []string{
		" " + name, name + " ", "\t" + name, name + "\t", " " + name + " ", name + "  ", name + " \t", name + "\n",
		name + "\r", name + "\r\n", "\n" + name,
		name + "\x00", "\x00" + name, name + "\x7f", name + "\x1b", name + "\v", name + "\f",
		name + "\r\nImpersonate-Group: " + masters,
		name[:1] + "\n" + name[1:], name[:1] + "\x00" + name[1:], name + "\n ",
	}
}

// odd are forms that it carries as they are.
func odd(name string) []string {
	return []string{
		name[:1] + " " + name[1:], name[:1] + "\t" + name[1:], name[:1] + "  " + name[1:], name + "\u00a0",
		"\u00a0" + name, name + "\u0085", name + "\u2028",
		"\ufeff" + name, name + "\u200b", strings.ToUpper(name), name + ",x", name + "%20", "%20" + name, "+" + name,
		`"` + name + `"`, name + ";", name + `\`,
		name + "ä", name + "\u0301", name + "𝔘", name + "\ufffd", strings.Repeat(name, 100),
	}
}

func forms(name string) []string { return append(lossy(name), odd(name)...) }

// userID is the attribute of a subject in which kube-apiserver reads a user's id.
var userID = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

// byCertificate is an identity that a certificate proves.
func byCertificate(name, uid string, groups ...string) hostile {
	h := hostile{subject: &pkix.Name{CommonName: name, Organization: groups},
		texts: append([]string{name, uid}, groups...)}
	h.name = fmt.Sprintf("certificate %.40q %.40q %.40q", name, groups, uid)
	if uid != "" {
		h.subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: userID, Value: uid}}
	}
	return h
}

// byFront is an identity that a front proxy vouches for.
func byFront(fields ...field) hostile {
	h := hostile{fields: fields, name: fmt.Sprintf("front proxy %.120q", fields)}
	for _, f := range fields {
		h.texts = append(h.texts, f.value)
	}
	return h
}

// entitled gives the identity all rights, by exactly this name.
func (h hostile) entitled(kind, name string) hostile {
	h.right = &rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	h.name += ", entitled"
	return h
}

// people are all hostile identities. Every other one that is in a position to has all rights under
// its own odd name.
func people() []hostile {
	var all []hostile
	add := func(i int, h hostile, kind, name string) {
		if i%2 == 1 {
			h = h.entitled(kind, name)
		}
		all = append(all, h)
	}
	for i, form := range forms(root) {
		add(i, byCertificate(form, ""), rbacv1.UserKind, form)
	}
	for i, form := range forms(masters) {
		add(i, byCertificate(mallory, "", form), rbacv1.GroupKind, form)
	}
	for i, form := range lossy(roots) {
		add(i+1, byCertificate(mallory, "", "others", form), rbacv1.GroupKind, form)
	}
	for i, form := range forms("7") {
		add(i, byCertificate(fmt.Sprint("numbered-", i), form), rbacv1.UserKind, fmt.Sprint("numbered-", i))
	}
	all = append(all, special()...)
	return append(all, fronts()...)
}

// special are names that kube-apiserver gives a meaning to.
func special() []hostile {
	anonymous := byCertificate("system:anonymous", "", "others")
	anonymous.unnamed = true
	all := []hostile{
		anonymous,
		byCertificate("system:anonymous", "", "system:unauthenticated"),
		byCertificate(mallory, "", "system:authenticated", roots).entitled(rbacv1.GroupKind, roots),
		byCertificate(mallory, "", "system:authenticated", "system:authenticated"),
		byCertificate(mallory, "", "system:unauthenticated"),
		byCertificate(mallory, "", "", "others"),
		byCertificate("system:serviceaccount:default:x", ""),
		byCertificate("system:node:n", ""),
	}
	for _, name := range []string{"system:kube-scheduler", "system:kube-controller-manager",
		"system:serviceaccount:kube-system:x"} {
		all = append(all, byCertificate(" "+name, ""), byCertificate(name+" ", ""), byCertificate(name+"\n", ""))
	}
	return append(all, byCertificate("system:node:n ", "", "system:nodes"),
		byCertificate("system:node:n", "", "system:nodes "))
}

// fronts are those that a front proxy vouches for. A line break would end the header, so there is
// none.
func fronts() []hostile {
	var all []hostile
	add := func(i int, h hostile, kind, name string) {
		switch {
		case strings.ContainsAny(name, "\r\n"):
			return
		case i%2 == 1:
			h = h.entitled(kind, name)
		}
		all = append(all, h)
	}
	user := func(name string) field { return field{"X-Remote-User", name} }
	for i, form := range forms(root) {
		add(i, byFront(user(form)), rbacv1.UserKind, form)
		add(i+1, byFront(user(mallory), field{"X-Remote-Group", "others"}, field{"X-Remote-Group", form}),
			rbacv1.GroupKind, form)
	}
	for i, form := range forms(masters) {
		add(i, byFront(user(mallory), field{"X-Remote-Group", form}), rbacv1.GroupKind, form)
	}
	for _, form := range []string{" 7", "7 ", "7\t", "7\x7f", "ä", "7 7"} {
		all = append(all, byFront(user(root), field{"X-Remote-Uid", form}),
			byFront(user(root), field{"X-Remote-Extra-Team", form}))
	}
	for _, key := range []string{"%54eam", "TEAM", "a%2fb", "%00", "%0a", "%20a", "a%20", "%ff", "%c3%a4", "%zz", "a_b",
		"a.b", "%"} {
		all = append(all, byFront(user(root), field{"X-Remote-Extra-" + key, "a"}, field{"X-Remote-Extra-" + key, ""}))
	}
	return append(all,
		byFront(user("root\xff")), byFront(user("root\ufffd")), byFront(user(mallory), field{"X-Remote-Group", "roots\xff"}),
		byFront(user("system:serviceaccount:default:x")), byFront(user("system:node:n")),
	)
}

// bindings are subjects of those that have all rights.
func bindings(all []hostile) []rbacv1.Subject {
	subjects := []rbacv1.Subject{
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: root},
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: roots},
	}
	for _, h := range all {
		if h.right != nil {
			subjects = append(subjects, *h.right)
		}
	}
	return subjects
}
