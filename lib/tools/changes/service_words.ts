import type { KubeObject } from "../../api/kind.ts";
import type { EndpointSlice } from "../../api/kinds/endpoint_slice.ts";
import type { Endpoints } from "../../api/kinds/endpoints.ts";
import type { Service } from "../../api/kinds/service.ts";
import { SERVICE_NAME_LABEL } from "../../api/labels.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import type { NodeState } from "../../proxy/node_state.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import { namespacedNameOf, serviceKey } from "../../proxy/service_port_name.ts";
import type { ChangeRecorder } from "./change_recorder.ts";
import { itemChanges, limited, shortened } from "./change_text.ts";
import { describePlan } from "./describe_plan.ts";
import type { CauseWords, ChangeSubject, EffectWords } from "./pending_changes.ts";
import {
  describeEndpoints,
  describeEndpointSlice,
  describeNode,
  describeService,
} from "./describe_object.ts";

/** An object of one kind before and after; one of them may be absent. */
interface Change<Kind, State> {
  readonly kind: Kind;
  readonly previous: State;
  readonly current: State;
}

/** A change of one object, or of the node's addresses or configuration, as it arrives. */
export type ObjectChange =
  | Change<"Service", Service | undefined>
  | Change<"EndpointSlice", EndpointSlice | undefined>
  | Change<"Endpoints", Endpoints | undefined>
  | Change<"Node", NodeState>
  | Change<"addresses", readonly IpAddress[]>
  | Change<"ServiceCIDR" | "configuration" | "machines", undefined>;

/** Writes down the changes of one family of Services. */
export type ServiceChangeRecorder = ChangeRecorder<ObjectChange, ServicePlan>;

/** Describes changes of Services for the change log. */
export const SERVICE_WORDS = {
  causeWords: { subjectOf, wordsOf: wordsOfChange } satisfies CauseWords<ObjectChange>,
  effectWords: {
    keyOf: ({ key }) => key,
    ownerOf: ({ name }) => serviceKey(name),
    wordsOf: describePlan,
  } satisfies EffectWords<ServicePlan>,
};

/** Returns the object of a change. */
function subjectOf(change: ObjectChange): ChangeSubject {
  if (change.kind === "Node") return { name: change.current.name };
  const object: KubeObject | undefined = isObjectChange(change)
    ? change.current ?? change.previous
    : undefined;
  if (object === undefined) return { name: "" };
  const owner = namespacedNameOf(object);
  const name = shortened(serviceKey(owner));
  if (change.kind !== "EndpointSlice") return { name, owner: serviceKey(owner) };
  const label = object.metadata.labels?.[SERVICE_NAME_LABEL];
  return label === undefined ? { name } : { name, owner: serviceKey({ ...owner, name: label }) };
}

function isObjectChange(
  change: ObjectChange,
): change is Extract<ObjectChange, { kind: "Service" | "EndpointSlice" | "Endpoints" }> {
  return ["Service", "EndpointSlice", "Endpoints"].includes(change.kind);
}

/** Describes the difference between both states. */
function wordsOfChange(change: ObjectChange): readonly string[] {
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
      return limited(itemChanges("address", [change.previous, change.current]));
    default:
      return [];
  }
}
