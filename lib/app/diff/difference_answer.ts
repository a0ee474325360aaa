/**
 * What `diff` is told over the control socket: a {@linkcode NodeDifference} as JSON. Pure.
 *
 * @module
 */
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type { FamilyDifference, NodeDifference, ServicePortNames } from "./node_difference.ts";

/** One family, with the names of those ServicePorts alone that are told of. */
interface FamilyAnswer extends Omit<FamilyDifference, "services" | "repair"> {
  readonly services: readonly (readonly [ServicePortKey, NamedServicePort])[];
}

type NamedServicePort = ServicePortNames extends ReadonlyMap<unknown, infer Name> ? Name : never;

/** What goes over the socket. */
export interface DifferenceAnswer extends Omit<NodeDifference, "families"> {
  readonly families: readonly FamilyAnswer[];
}

/** Of what was compared, without a repair. */
export function differenceAnswer({ families, ...node }: NodeDifference): DifferenceAnswer {
  return { ...node, families: families.map(familyAnswer) };
}

/** What was compared, of an answer; `undefined` where it has another form. */
export function answeredDifference(answer: object): NodeDifference | undefined {
  const { families, ...node } = answer as DifferenceAnswer;
  const isWhole = families.every((family: FamilyAnswer | null) =>
    [family?.differences, family?.quarantined, family?.services].every(Array.isArray)
  );
  if (!isWhole) return undefined;
  return {
    ...node,
    families: families.map(({ services, ...rest }) => ({ ...rest, services: new Map(services) })),
  };
}

function familyAnswer({ family, services, differences, quarantined }: FamilyDifference) {
  const keys = new Set([...differences, ...quarantined].flatMap(({ key }) => key ?? []));
  const named = [...keys].flatMap((key) => {
    const service = services.get(key);
    return service ? [[key, { name: service.name, protocol: service.protocol }] as const] : [];
  });
  return { family, differences, quarantined, services: named };
}
