import type { KindSpec } from "../../api/kind.ts";
import { LEASE } from "../../api/kinds/lease.ts";
import { NAMESPACE } from "../../api/kinds/namespace.ts";
import { ROUTED_NODE } from "../../api/kinds/routed_node.ts";
import { ROUTED_SERVICE } from "../../api/kinds/routed_service.ts";
import type { ResourceAccess } from "../../kube/access_review.ts";
import { ROUTING_OBJECT_KINDS } from "../../api/kinds/routing_objects.ts";
import { routingPartsOf, type RoutingSettings } from "../../routing/routing_settings.ts";
import type { NeededAccess } from "../run/controller_source.ts";

/** The kinds that addresses and routes are planned from. */
export function routingKinds(
  settings: Pick<RoutingSettings, "pools" | "objects">,
): readonly KindSpec[] {
  const needed = routingPartsOf(settings);
  return [
    ROUTED_SERVICE,
    ROUTED_NODE,
    ...(needed.has("namespaces") ? [NAMESPACE] : []),
    ...(needed.has("leases") ? [LEASE] : []),
    ...(needed.has("objects") ? ROUTING_OBJECT_KINDS : []),
  ];
}

/** The permissions that the settings need. Without pools, nothing is written. */
export function routingAccess(settings: RoutingSettings): NeededAccess {
  const { objects, leaseNamespace: namespace } = settings;
  const needed = routingPartsOf(settings);
  const read = routingKinds(settings).flatMap((spec) =>
    (["list", "watch"] as const).map((verb): ResourceAccess => ({
      ...{ verb, group: spec.group, plural: spec.plural },
      ...(spec === LEASE && { namespace }),
    }))
  );
  const leases = (["get", "create", "patch"] as const).map((verb): ResourceAccess => ({
    ...{ verb, group: LEASE.group, plural: LEASE.plural, namespace },
  }));
  const ofObjects = (objects ? ROUTING_OBJECT_KINDS : []).map(({ group, plural }) => ({
    ...{ verb: "patch" as const, group, plural: `${plural}/status` },
  }));
  const status: ResourceAccess = { verb: "patch", group: "", plural: "services/status" };
  return {
    name: "access for routing",
    accesses: [...read, ...needed.has("leases") ? [...leases, status] : [], ...ofObjects],
    clusterRole: "kube-relay-routing",
    cure:
      "create this ClusterRole, with the rights to Leases in a Role of their namespace, and bind " +
      "it to the identity of the kubeconfig, or name a kubeconfig that has the rights with " +
      "--routing-kubeconfig",
    effect: "no address is assigned or announced",
    texts: {
      granted: "The API server allows what routing needs",
      unanswerable: "Cannot ask for the rights that routing needs; trying to use them",
      unanswered: "Cannot ask for the rights that routing needs; will ask again",
      refused: "No address is assigned or announced: the API server does not permit what routing " +
        "needs; Services work, and the request is repeated",
      unusableKubeconfig:
        "No address is assigned or announced: the kubeconfig for routing cannot be " +
        "used; Services work, and it is read again",
    },
  };
}
