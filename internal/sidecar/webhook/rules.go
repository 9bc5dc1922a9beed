package webhook

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"spillway/internal/memory"
	"spillway/internal/sidecar/admission"
	"spillway/internal/sidecar/limits"
	"spillway/internal/upstream"
	"spillway/internal/upstream/transport"
)

// rulesTimeout is how long the start waits for the rules of namespaces. After that, pods are
// created without sidecars.
const rulesTimeout = 10 * time.Second

// clusterRules are the rules of all namespaces, followed until stop is called.
type clusterRules struct {
	of    admission.RulesFunc // nil: namespaces allow everything
	count int                 // LimitRanges and ResourceQuotas in memory at the start
	stop  func()
}

// followRules follows the rules of the cluster of a kubeconfig. It returns once they are known, or
// after rulesTimeout.
func followRules(ctx context.Context, kubeconfig string, log *zap.Logger) (*clusterRules, error) {
	source, err := transport.LoadConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--namespace-limits=read: %w; or say --namespace-limits=ignore", err)
	}
	transports, err := transport.New(source, log)
	if err != nil {
		return nil, fmt.Errorf("--namespace-limits=read: %w", err)
	}
	client, err := upstream.NewClient(transports)
	if err != nil {
		return nil, fmt.Errorf("--namespace-limits=read: %w", err)
	}
	follower, err := limits.New(client.Config(), client.HTTP(), log)
	if err != nil {
		return nil, fmt.Errorf("--namespace-limits=read: %w", err)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx)) // reviews go on after ctx
	var done sync.WaitGroup
	done.Go(func() { follower.Run(running) })
	done.Go(func() { _ = transports.Run(running) }) // it ends with its context, without an error
	waiting, cancelWait := context.WithTimeout(ctx, rulesTimeout)
	defer cancelWait()
	if err := follower.Wait(waiting); err != nil {
		log.Warn("it is not known what namespaces allow their pods: they get no sidecars until it is; allow get, list and "+
			"watch of limitranges and resourcequotas", zap.Error(err))
	}
	return &clusterRules{follower.Of, follower.Len(), func() { cancel(); done.Wait(); client.Close() }}, nil
}

const (
	// budgetBytes is the most memory that the webhook uses, whatever the container's limit: package
	// admission bounds what it holds of reviews. The rules come on top.
	budgetBytes = 88 << 20
	// ruleBytes is what a LimitRange or a ResourceQuota takes: 3,180 as measured.
	ruleBytes = 4 << 10
)

// limitMemory has the garbage collector keep to budgetBytes and the bytes of rules, or to the
// container's limit if that is less. It returns Go's part of it; 0: the environment allows any.
func limitMemory(rules int64) (int64, error) {
	bytes, err := memory.Budget(0)
	if bytes == 0 || bytes > budgetBytes+rules {
		bytes = budgetBytes + rules
	}
	limit := memory.SetLimit(bytes)
	if limit == nil {
		return 0, err
	}
	return limit.Bytes(), err
}
