// Package audit sends kube-apiserver and Spillway the same requests under the same audit policy,
// and holds their audit logs against each other: event by event and field by field they say the
// same, and no request that was sent to Spillway is in both logs or in neither.
package audit
