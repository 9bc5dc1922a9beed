package exchange

import "net/http"

// Deviation is a way in which a response of the proxy may differ from kube-apiserver's. The
// conformance suite fails when a response differs in any other way, and when a declared deviation
// never occurs. docs/deviations.md is made of this table.
type Deviation struct {
	// ID is how code and documents cite it. DEV-n are differences between the proxy and a
	// kube-apiserver. N-n are values that two responses of the same API server do not share either,
	// so that a rule compares them instead of their bytes. V-n are differences from an older
	// API server, or from one with other feature gates: there the response is the newest API server's.
	ID string
	// What differs, and how far.
	What string
	// Why that is right, or harmless.
	Why string
	// Rule is the rule of docs/protocol.md (W-n) that it bends or relies on.
	Rule string
	// Releases says of which older API servers a V-n is.
	Releases string

	in       func(Release) bool     // one of them
	older    func(*Comparison) bool // the difference from it is this
	encoding bool                   // of what says the same
}

// The identities of the deviations.
const (
	DevNoFlowControl    = "DEV-1"
	DevJSONForProtobuf  = "DEV-3"
	DevBookmarkTiming   = "DEV-5"
	DevLength           = "DEV-6"
	DevOldest           = "DEV-7"
	DevLongerHistory    = "DEV-8"
	DevClosed           = "DEV-11"
	DevMalformed        = "DEV-13"
	NormListVersion     = "N-1"
	NormCurrentVersion  = "N-2"
	NormBookmarkVersion = "N-3"
	NormPerAnswer       = "N-4"
	NormClocked         = "N-5"
	DevWatchList        = "V-1"
	DevToken            = "V-2"
	DevExactFuture      = "V-3"
	DevSelectable       = "V-4"
	DevEmptyTime        = "V-5"
	DevRefusal          = "V-6"
	DevTokenAtZero      = "V-7"
	DevSettings         = "V-8"
	DevBlueprint        = "V-9"
	DevOneOfAll         = "V-11"
)

// Deviations are all differences that the conformance suite allows.
var Deviations = []Deviation{
	{
		ID: DevNoFlowControl, Rule: "W-3",
		What: "X-Kubernetes-Pf-Flowschema-Uid and X-Kubernetes-Pf-Prioritylevel-Uid are missing from responses from memory",
		Why: "no flow schema and no priority level of the API server took part in the response; no client acts on these " +
			"headers",
	},
	{
		ID: DevJSONForProtobuf, Rule: "W-42, W-235",
		What: "a request for CustomResourceDefinitions or APIServices that prefers protobuf and also accepts JSON is " +
			"answered from memory in JSON",
		Why: "client-go has no Go types for them; the Accept header allows JSON, and clients decode by the response's " +
			"Content-Type",
	},
	{
		ID: DevBookmarkTiming, Rule: "W-111",
		What: "bookmarks after the initial events are sent at other times, so that their number differs; the last one is " +
			"sent once, two seconds before the deadline",
		Why: "the API server's own times are random within seconds; the suite checks on every stream that what a bookmark " +
			"promises is true",
	},
	{
		ID: DevLength, Rule: "W-5",
		What: "a response of known length carries a Content-Length, where the API server sends more than 2048 bytes in " +
			"chunks; over HTTP/2, a response of more than 2048 bytes that passes through carries none",
		Why: "the framing depends on net/http's buffer and is no promise; a length lets clients notice a truncated response",
	},
	{
		ID: DevOldest, Rule: "W-107, W-230",
		What: "the oldest resourceVersion in the message of a watch's 410 is that of the proxy's history, not of the " +
			"API server's, unless the proxy requested older events from the API server",
		Why: "the message is true for the server that sends it, and no client reads it",
	},
	{
		ID: DevLongerHistory, Rule: "W-115, W-231",
		What: "a watch that resumes from a resourceVersion of before a restart of the API server receives the events after " +
			"it, where the API server itself answers 410",
		Why: "the proxy has its own history, with the events that happened, in their order",
	},
	{
		ID: DevClosed, Rule: "W-2",
		What: "over HTTP/1.1, these requests are answered with Connection: close if they pass through, even if they are " +
			"refused: watches, logs, proxied and upgraded requests, exec and the like without an upgrade, and requests with " +
			"a body; so is a watch from memory behind which the client has already sent another request; that other " +
			"request is not answered",
		Why: "each of these requests needs a connection of its own; the client opens another one for its next request, and " +
			"must be able to at any time",
	},
	{
		ID: DevMalformed, Rule: "W-21",
		What: "a request whose target is not a URL is refused with 400, but with another text and more headers",
		Why: "net/http refuses it before the API server sees it; the connection is closed either way, and no client sends " +
			"such a request",
	},
	{
		ID: NormListVersion, Rule: "W-62",
		What: "the resourceVersion of a list that does not request an exact one, and of its continue token; it must not be " +
			"below the requested one",
		Why: "it is store-wide and moves with every write to any resource, such as the API server's own lease every ten " +
			"seconds",
	},
	{
		ID: NormCurrentVersion, Rule: "W-68, W-106",
		What: "the number after \"current:\" in the message of a 504 for a resourceVersion that is too large",
		Why:  "it is the store-wide resourceVersion at that moment",
	},
	{
		ID: NormBookmarkVersion, Rule: "W-110, W-111",
		What: "the resourceVersion of bookmarks; it must not be below that of an earlier event of the stream, nor below " +
			"the requested one",
		Why: "it shows how far the answering server has come at that moment",
	},
	{
		ID: NormPerAnswer, Rule: "W-3",
		What: "the values of Date, and of an Audit-Id that the client did not choose; both headers must be present",
		Why:  "they are new in every response",
	},
	{
		ID: NormClocked, Rule: "W-46",
		What: "tables that contain an age; OpenAPI; health checks; watches with a negative timeoutSeconds; watches from " +
			"now that end before the API server knows its current resourceVersion; watches of at most two seconds on which " +
			"one side had sent less than the other at the end: the suite repeats these requests until both responses are " +
			"equal; the ERROR event at the end of a watch of at most three seconds from a future resourceVersion, which the " +
			"API server may leave out (W-106)",
		Why: "the API server prints the age at the time of the response, sometimes reassembles OpenAPI, and repeats its " +
			"health checks; on a watch that ends before or soon after it begins, both servers send what they have time for, " +
			"and the proxy may have to query the API server first; tables, OpenAPI and health checks pass through",
	},
	{
		ID: DevOneOfAll, Rule: "W-100, W-152",
		Releases: "1.31",
		What: "a watch of all namespaces that selects one name begins with the objects of that name, where the API server " +
			"sends no initial state",
		Why:   "1.31 looks for these objects in its watch cache by a key without a namespace; 1.32 sends them",
		in:    func(r Release) bool { return r.Minor == 31 },
		older: (*Comparison).oneOfAll,
	},
	{
		ID: DevWatchList, Rule: "W-32, W-100, W-101, W-215",
		Releases: "before 1.32, 1.33, and newer ones with WatchList=false",
		What: "sendInitialEvents is served, where the API server answers 422; a watch with bookmarks that begins with the " +
			"state also receives the bookmark at the end of the state",
		Why: "a request has the same answer whatever the upstream is; a client that does not send the option receives only " +
			"one more bookmark",
		in:    func(r Release) bool { return !r.Enabled("WatchList") },
		older: (*Comparison).watchList,
	},
	{
		ID: DevToken, Rule: "W-80, W-81",
		Releases: "before 1.34, and newer ones with ListFromCacheSnapshot=false",
		What:     "the start inside a continue token begins with a slash, where the API server's does not",
		Why:      "tokens are opaque to clients, and all API servers accept both forms",
		encoding: true,
		in:       func(r Release) bool { return !r.Enabled("ListFromCacheSnapshot") },
		older:    (*Comparison).tokensDiffer,
	},
	{
		ID: DevExactFuture, Rule: "W-64, W-68, W-176",
		Releases: "before 1.34, and newer ones with ListFromCacheSnapshot=false",
		What: "a LIST at an exact resourceVersion that is too large is answered 504 with Retry-After, where the API server " +
			"answers 500, or 504 without Retry-After",
		Why: "the newest API server does so; both answers say that the version does not exist yet",
		in:  func(r Release) bool { return !r.Enabled("ListFromCacheSnapshot") },
		older: func(c *Comparison) bool {
			return c.Direct.Status == http.StatusInternalServerError ||
				c.Direct.Status == http.StatusGatewayTimeout && c.Direct.Header.Get("Retry-After") == ""
		},
	},
	{
		ID: DevTokenAtZero, Rule: "W-69, W-80",
		Releases: "before 1.34, and newer ones with ListFromCacheSnapshot=false",
		What:     "limit is ignored in a LIST with both a continue token and resourceVersion=0, as it is without a token",
		Why:      "the newest API server does so; no client sends a resourceVersion with a token",
		in:       func(r Release) bool { return !r.Enabled("ListFromCacheSnapshot") },
		older: func(c *Comparison) bool {
			q := c.query()
			return q.Get("continue") != "" && q.Get("resourceVersion") == "0"
		},
	},
	{
		ID: DevSelectable, Rule: "W-152, W-154",
		Releases: "before 1.37",
		What:     "fields that became selectable in a later version are selectable",
		Why:      "the mirror has the whole object, and a refused selector is of no use to any client",
		in:       func(r Release) bool { return r.Minor < 37 },
		older: func(c *Comparison) bool {
			return c.query().Get("fieldSelector") != "" && c.Direct.Status == http.StatusBadRequest &&
				c.Proxied.Status == http.StatusOK
		},
	},
	{
		ID: DevBlueprint, Rule: "W-110, W-215",
		Releases: "1.32, and 1.33 with WatchList=true",
		What: "the bookmark at the end of the initial events has no annotation " +
			"kubernetes.io/initial-events-list-blueprint",
		Why:      "the annotation is an empty list in the encoding of one watch; later API servers do not send it",
		encoding: true,
		in:       func(r Release) bool { return r.Minor < 34 && r.Enabled("WatchList") },
		older:    func(c *Comparison) bool { return contains(c.Direct, "kubernetes.io/initial-events-list-blueprint") },
	},
	{
		ID: DevEmptyTime, Rule: "W-110",
		Releases: "before 1.34",
		What:     "bookmarks have no creationTimestamp, where the API server sends null",
		Why:      "both mean the same to every decoder",
		encoding: true,
		in:       func(r Release) bool { return r.Minor < 34 },
		older:    func(c *Comparison) bool { return contains(c.Direct, `"creationTimestamp":null`) },
	},
	{
		ID: DevSettings, Rule: "W-136",
		Releases: "before 1.37",
		What:     "the SETTINGS frame of HTTP/2 is that of the newest API server",
		Why:      "it describes the server that sends it",
	},
	{
		ID: DevRefusal, Rule: "W-30, W-31, W-32, W-154, W-175",
		Releases: "before 1.37, and 1.37 with WatchList=false",
		What: "refusals are those of the newest API server: the options that are refused, which of several faults the " +
			"message names, and its words",
		Why:   "the newest API server's rules hold for every upstream; no client uses a request that is refused either way",
		in:    func(r Release) bool { return r.Minor < 37 || !r.Enabled("WatchList") },
		older: (*Comparison).refused,
	},
}
