package main

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// accessReviews answers each SelfSubjectAccessReview by the authorizer of the server. Nothing is stored.
type accessReviews struct{ authorizer authorizer.Authorizer }

func (accessReviews) New() runtime.Object     { return &authorizationv1.SelfSubjectAccessReview{} }
func (accessReviews) Destroy()                {}
func (accessReviews) NamespaceScoped() bool   { return false }
func (accessReviews) GetSingularName() string { return "selfsubjectaccessreview" }

func (r accessReviews) Create(ctx context.Context, object runtime.Object, _ rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	review := object.(*authorizationv1.SelfSubjectAccessReview)
	user, found := request.UserFrom(ctx)
	asked := review.Spec.ResourceAttributes
	if !found || asked == nil {
		return nil, apierrors.NewBadRequest("want a user and spec.resourceAttributes")
	}
	decision, reason, err := r.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User:            user,
		Verb:            asked.Verb,
		Namespace:       asked.Namespace,
		APIGroup:        asked.Group,
		Resource:        asked.Resource,
		ResourceRequest: true,
	})
	review.Status = authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow,
		Denied:  decision == authorizer.DecisionDeny,
		Reason:  reason,
	}
	if err != nil {
		review.Status.EvaluationError = err.Error()
	}
	return review, nil
}
