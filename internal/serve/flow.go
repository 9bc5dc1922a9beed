package serve

import (
	"spillway/internal/auth"
	"spillway/internal/fanout"
	"spillway/internal/flowcontrol"
)

// flowOf is the flow that the limits count a request for: its user, if it is known already or was
// authenticated lately, since no review is requested for this; else its address (design D13). What
// a request only claims to be counts for nothing, or every made-up token would be a user with a
// share.
func flowOf(c call, v visitor, front Front) flowcontrol.Flow {
	who := v.who
	switch {
	case v.grant != nil:
		who = v.grant.result.Identity
	case who == nil && !v.admitted && front.Access != nil:
		who = front.Access.Authenticator.Recall(auth.AuthnRequest{Header: c.Headers(isAuthorization)})
	}
	if who != nil {
		return flowcontrol.UserFlow(who.Name())
	}
	return flowcontrol.AddrFlow(c.Address())
}

func isAuthorization(key string) bool { return key == "Authorization" }

// ownerOf is the user that the hub counts a watch for.
func ownerOf(flow flowcontrol.Flow) fanout.Owner {
	if flow.User != "" {
		return fanout.Owner("user " + flow.User)
	}
	return fanout.Owner("address " + flow.Addr.String())
}
