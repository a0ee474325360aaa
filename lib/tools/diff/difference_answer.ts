/** The answer to `/difference` on the control socket. Pure. */
import * as v from "valibot";
import { PROTOCOLS } from "../../net/port.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import { controller, mode, QUARANTINED } from "../dump/dump_status.ts";
import {
  fields,
  foreignText,
  ipFamily,
  list,
  objectName,
  optional,
  ownText,
  portName,
} from "../dump/dump_value.ts";
import type { FamilyDifference, NodeDifference, ServicePortNames } from "./node_difference.ts";

type NamedService = ServicePortNames extends ReadonlyMap<unknown, infer Named> ? Named : never;

const servicePort = v.pipe(ownText, v.transform((text) => text as ServicePortKey));
const protocol = v.picklist(PROTOCOLS, `has to be ${PROTOCOLS.join(", ")}`);

const DIFFERENCE = fields({
  object: ownText,
  name: foreignText,
  kind: v.picklist(["missing", "extra", "altered", "reordered"]),
  key: optional(servicePort),
  wanted: optional(foreignText),
  found: optional(foreignText),
  cure: optional(foreignText),
});

const SERVICE = v.strictTuple([
  servicePort,
  fields({
    name: fields({ namespace: objectName, name: objectName, port: portName, protocol }),
    protocol,
  }),
]);

const FAMILY = fields({
  controller: optional(controller),
  family: ipFamily,
  differences: list(DIFFERENCE),
  quarantined: QUARANTINED,
  services: list(SERVICE),
});

const FAMILIES = v.pipe(
  list(FAMILY),
  v.check((all) => {
    const loops = all.map(({ controller, family }) => `${controller} ${family}`);
    return new Set(loops).size === loops.length;
  }),
);

/** Drops any other field, such as `repair`. */
const ANSWER = fields({ mode, nodeName: objectName, families: FAMILIES });

/** The answer of another controller, for all its families. */
const CONTROLLER_ANSWER = fields({ families: FAMILIES });

/** The JSON of the answer. */
export type DifferenceAnswer = v.InferInput<typeof ANSWER>;

/** The JSON of the answer of another controller. */
export type ControllerDifferenceAnswer = v.InferInput<typeof CONTROLLER_ANSWER>;

/** Encodes a difference without its repair. */
export function differenceAnswer({ mode, nodeName, families }: NodeDifference): DifferenceAnswer {
  return { mode, nodeName, ...controllerDifferenceAnswer(families) };
}

/** Encodes the differences of one controller. */
export function controllerDifferenceAnswer(
  families: readonly FamilyDifference[],
): ControllerDifferenceAnswer {
  return { families: families.map(familyAnswer) };
}

/** Decodes an answer; returns undefined if it is malformed. */
export function answeredDifference(answer: unknown): NodeDifference | undefined {
  const { success, output } = v.safeParse(ANSWER, answer);
  if (!success) return undefined;
  return { ...output, families: familiesOf(output) };
}

/** Decodes the answer of another controller; returns undefined if it is malformed. */
export function answeredControllerDifference(
  answer: unknown,
): readonly FamilyDifference[] | undefined {
  const { success, output } = v.safeParse(CONTROLLER_ANSWER, answer);
  return success ? familiesOf(output) : undefined;
}

function familiesOf(
  { families }: v.InferOutput<typeof CONTROLLER_ANSWER>,
): readonly FamilyDifference[] {
  return families.map(({ services, ...rest }) => ({ ...rest, services: new Map(services) }));
}

function familyAnswer(difference: FamilyDifference) {
  const { controller, family, differences, quarantined } = difference;
  const services: ReadonlyMap<string, NamedService> = difference.services;
  const keys = new Set([...differences, ...quarantined].flatMap(({ key }) => key ?? []));
  const named = [...keys].flatMap((key): [string, v.InferInput<typeof SERVICE>[1]][] => {
    const service = services.get(key);
    return service ? [[key, { name: service.name, protocol: service.protocol }]] : [];
  });
  return {
    ...(controller && { controller }),
    ...{ family, differences: [...differences], quarantined: [...quarantined], services: named },
  };
}
