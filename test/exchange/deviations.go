package exchange

// Deviation is a way in which an answer of the proxy may differ from the apiserver's. The conformance suite fails when an
// answer differs in any other way, and when a deviation is declared and never met.
type Deviation struct {
	// ID names it in ARCHITECTURE.md. D-n are differences between the proxy and an apiserver. N-n are values that two
	// answers of the same apiserver do not share either, so that they are compared by a rule instead of by their bytes.
	ID string
	// What differs, and how far.
	What string
	// Why that is right, or harmless.
	Why string
	// Rule is the rule of the wire contract (W-n) that it bends or relies on.
	Rule string
}

// The identities of the deviations.
const (
	DevNoFlowControl    = "D-1"
	DevJSONForProtobuf  = "D-3"
	DevBookmarkTiming   = "D-5"
	DevLength           = "D-6"
	DevOldest           = "D-7"
	DevLongerHistory    = "D-8"
	DevClosed           = "D-11"
	DevUnproven         = "D-12"
	DevMalformed        = "D-13"
	NormListVersion     = "N-1"
	NormCurrentVersion  = "N-2"
	NormBookmarkVersion = "N-3"
	NormPerAnswer       = "N-4"
	NormClocked         = "N-5"
)

// Deviations is the one table of everything in which the proxy may differ.
var Deviations = []Deviation{
	{
		ID: DevNoFlowControl, Rule: "W-3",
		What: "X-Kubernetes-Pf-Flowschema-Uid and X-Kubernetes-Pf-Prioritylevel-Uid are missing from answers from memory",
		Why:  "no flow schema and no priority level of the apiserver had a part in the answer; no client acts on them",
	},
	{
		ID: DevJSONForProtobuf, Rule: "W-42, W-235",
		What: "a request for definitions of custom resources or for API services that prefers protobuf and also accepts JSON is answered from memory in JSON",
		Why:  "their Go types are not client-go's; the Accept header allows it, and clients decode by the answer's Content-Type",
	},
	{
		ID: DevBookmarkTiming, Rule: "W-111",
		What: "bookmarks after the initial events come at other moments and therefore in another number; the one before the deadline comes " +
			"once, two seconds before it",
		Why: "the apiserver's own moments are random within seconds; what a bookmark promises is checked on every stream",
	},
	{
		ID: DevLength, Rule: "W-5",
		What: "an answer whose length is known carries a Content-Length, where the apiserver sends more than 2048 bytes in chunks; over HTTP/2 one that is longer than that and passed through carries none",
		Why:  "the framing is net/http's buffer and no promise; a length lets clients notice a truncated answer",
	},
	{
		ID: DevOldest, Rule: "W-107, W-230",
		What: "the oldest resourceVersion named by a watch's 410 is the beginning of the proxy's history, not of the apiserver's, where that was not asked for more",
		Why:  "it is the truth about who answers, and no client reads it",
	},
	{
		ID: DevLongerHistory, Rule: "W-115, W-231",
		What: "a watch from before an apiserver's restart is answered with the events since, where the apiserver itself answers 410",
		Why:  "that is what a proxy with a history of its own is for: the events are those that happened, in their order",
	},
	{
		ID: DevClosed, Rule: "W-2",
		What: "over HTTP/1.1, watches, logs, proxied and upgraded requests, exec and its like without an upgrade, and those with a body that pass through, and their refusals, are answered with Connection: close",
		Why:  "each has the client's connection to itself; a client opens another one for its next request, as it must be able to at any time",
	},
	{
		ID: DevUnproven, Rule: "W-66, W-106, W-216",
		What: "a watch-list from now that cannot be proven complete, as when etcd is away, ends cleanly after its ADDED events, without its " +
			"bookmark, where the apiserver sends an ERROR 500 at its timeout; so does one from a resourceVersion that does not arrive and of which upstream " +
			"does not say that it is too large, without any event, where the apiserver sends an ERROR 504 after three seconds",
		Why: "neither claims to be complete; clients that wait for the bookmark ask again, and those from now hear it from upstream after the second failure",
	},
	{
		ID: DevMalformed, Rule: "W-21",
		What: "a request whose target is no URL is refused with 400 in other words and with more headers",
		Why:  "net/http refuses it before the apiserver sees it; the connection is closed either way, and no client sends such a thing",
	},
	{
		ID: NormListVersion, Rule: "W-62",
		What: "the resourceVersion of a list that does not ask for an exact one, also inside its continue token: not below what was asked for",
		Why:  "it is store-wide and moves with every write to anything, as the apiserver's own lease every ten seconds",
	},
	{
		ID: NormCurrentVersion, Rule: "W-68, W-106",
		What: "the number after \"current:\" in the message of a 504 for a resourceVersion that is too large",
		Why:  "it is the moment's store-wide resourceVersion",
	},
	{
		ID: NormBookmarkVersion, Rule: "W-110, W-111",
		What: "the resourceVersion of bookmarks: not below any event before it on its stream, nor below what was asked for",
		Why:  "it is the moment's progress of whoever answers",
	},
	{
		ID: NormPerAnswer, Rule: "W-3",
		What: "the values of Date and of an Audit-Id that the client did not choose: both are there",
		Why:  "made anew for every answer",
	},
	{
		ID: NormClocked, Rule: "W-46",
		What: "tables that contain an age, OpenAPI, watches with a negative timeoutSeconds, those from now that are over before the apiserver knows how " +
			"far it is, watches of two seconds at most in which one of the two has told less than the other when their time is up, and those that the proxy " +
			"ended unproven, are asked for until both answers are equal",
		Why: "the apiserver prints the age at the time of the answer, puts OpenAPI together anew now and then, and sends of a watch that is over before it begins, or soon after, what it " +
			"finds the time for, as does the proxy, which may have to ask it first; the first two pass through",
	},
}
