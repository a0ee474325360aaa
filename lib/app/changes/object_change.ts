/**
 * A change of an object as it arrives, before it is put into words: that is done once, after the
 * sync, for what all the changes of the object came to.
 *
 * @module
 */
import type { Endpoints, EndpointSlice, KubeObject, Service } from "../../api/objects.ts";
import { SERVICE_NAME_LABEL } from "../../api/service_name_label.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import type { NodeState } from "../../proxy/node_state.ts";
import { namespacedNameOf, type ServiceKey, serviceKey } from "../../proxy/service_port_name.ts";
import type { CauseKind, ChangeAction } from "./change_entry.ts";
import { shortened } from "./change_parts.ts";
import {
  describeAddresses,
  describeEndpoints,
  describeEndpointSlice,
  describeNode,
  describeService,
} from "./describe_object.ts";

/** Two states, of which one may be absent. */
interface States<State> {
  readonly previous: State | undefined;
  readonly current: State | undefined;
}

/** A change of one object, or of something that counts like one. */
export type ObjectChange =
  | ({ readonly kind: "Service" } & States<Service>)
  | ({ readonly kind: "EndpointSlice" } & States<EndpointSlice>)
  | ({ readonly kind: "Endpoints" } & States<Endpoints>)
  | ({ readonly kind: "Node"; readonly previous: NodeState; readonly current: NodeState })
  | ({
    readonly kind: "addresses";
    readonly previous: readonly IpAddress[];
    readonly current: readonly IpAddress[];
  })
  | ({ readonly kind: "ServiceCIDR" | "configuration" } & States<undefined>);

/** `namespace/name` of what changed; the name of a Node; empty for what has none. */
export function nameOfChange(change: ObjectChange): string {
  switch (change.kind) {
    case "Service":
    case "EndpointSlice":
    case "Endpoints":
      return objectName(change.current ?? change.previous);
    case "Node":
      return change.current.name;
    default:
      return "";
  }
}

/** The Service that it can have an effect on; absent where that is any. */
export function serviceOfChange(change: ObjectChange): ServiceKey | undefined {
  switch (change.kind) {
    case "Service":
    case "Endpoints": {
      const object = change.current ?? change.previous;
      return object && serviceKey(namespacedNameOf(object));
    }
    case "EndpointSlice": {
      const slice = change.current ?? change.previous;
      const name = slice?.metadata.labels?.[SERVICE_NAME_LABEL];
      if (slice === undefined || name === undefined) return undefined;
      return serviceKey({ ...namespacedNameOf(slice), name });
    }
    default:
      return undefined;
  }
}

/** What it came to. */
export function actionOf(previous: unknown, current: unknown): ChangeAction {
  if (previous === undefined && current !== undefined) return "added";
  return previous !== undefined && current === undefined ? "deleted" : "updated";
}

/** The same in words. */
export function wordsOfChange(change: ObjectChange): readonly string[] {
  switch (change.kind) {
    case "Service":
      return describeService(change.previous, change.current);
    case "EndpointSlice":
      return describeEndpointSlice(change.previous, change.current);
    case "Endpoints":
      return describeEndpoints(change.previous, change.current);
    case "Node":
      return describeNode(change.previous, change.current);
    case "addresses":
      return describeAddresses(change.previous, change.current);
    default:
      return [];
  }
}

/** Both as one change: the state before the first, and that after the second. */
export function mergedChange(first: ObjectChange, second: ObjectChange): ObjectChange {
  // The kinds are the same: changes are merged by kind and name.
  return { ...second, previous: first.previous } as ObjectChange;
}

/** For telling objects apart; the kinds have names of their own. */
export function identityOf(change: ObjectChange): `${CauseKind} ${string}` {
  return `${change.kind} ${nameOfChange(change)}`;
}

function objectName(object: KubeObject | undefined): string {
  return object === undefined ? "" : shortened(serviceKey(namespacedNameOf(object)));
}
