import type { KubeObject } from "../../api/kind.ts";
import type { ServiceChange } from "../../app/change_listener.ts";
import { SERVICE_NAME_LABEL } from "../../api/labels.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import { namespacedNameOf, serviceKey } from "../../proxy/service_port_name.ts";
import { itemChanges, limited, shortened } from "./change_text.ts";
import { describePlan } from "./describe_plan.ts";
import type { CauseWords, ChangeSubject, EffectWords } from "./change_recorder.ts";
import {
  describeEndpoints,
  describeEndpointSlice,
  describeNode,
  describeService,
} from "./describe_object.ts";

/** Describes the causes of syncs of Services. */
export const SERVICE_CAUSES: CauseWords<ServiceChange> = { subjectOf, wordsOf };

/** Describes changed plans of ServicePorts. */
export const SERVICE_EFFECTS: EffectWords<ServicePlan> = {
  keyOf: ({ key }) => key,
  ownerOf: ({ name }) => serviceKey(name),
  wordsOf: describePlan,
};

/** Returns the object of a change. */
function subjectOf(change: ServiceChange): ChangeSubject {
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
  change: ServiceChange,
): change is Extract<ServiceChange, { kind: "Service" | "EndpointSlice" | "Endpoints" }> {
  return ["Service", "EndpointSlice", "Endpoints"].includes(change.kind);
}

/** Describes the difference between both states. */
function wordsOf(change: ServiceChange): readonly string[] {
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
