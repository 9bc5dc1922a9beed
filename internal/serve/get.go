package serve

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"spillway/internal/cache"
	"spillway/internal/codec"
	"spillway/internal/object"
	"spillway/internal/source"
)

// answerGet answers a GET of one object.
func (r *request) answerGet() outcome {
	p := r.plan
	state, err := r.awaitRV(p.Get.RV, p.Get.Hurried)
	if err != nil {
		return r.answerError(err)
	}
	o, ok := state.Get(p.Get.Key)
	if !ok {
		return r.answerError(apierrors.NewNotFound(p.Source.Resource().Info.GVR.GroupResource(), p.Get.Name))
	}
	document, err := codec.Append(make([]byte, 0, o.Size()+1), p.Encoding, o, o.RV)
	if err != nil {
		r.server.withdrawEncoding(p.Source, p.Encoding, err)
		return unsettled
	}
	if p.Encoding.Format == object.JSON {
		document = append(document, '\n')
	}
	isCompressed := shouldCompress(p.AnswerForm, len(document))
	if isCompressed {
		document = codec.AppendMember(nil, document)
	}
	a := r.newDocument("get", isCompressed)
	a.Body = document
	return outcome{answer: &answer{Answer: a, document: func() []byte { return jsonOfObject(p, o) }}}
}

// awaitRV is a state at or above a resourceVersion, for a GET or LIST. It waits only briefly for a
// client in a hurry.
func (r *request) awaitRV(rv uint64, hurried bool) (*cache.Snapshot, error) {
	from := r.plan.Source
	if !hurried {
		return from.AwaitRV(r.server.base, rv, source.VerdictTimeout)
	}
	ctx, cancel := context.WithTimeout(r.server.base, source.HurriedArrivalTimeout)
	defer cancel()
	return from.Resource().AwaitSnapshot(ctx, rv)
}
