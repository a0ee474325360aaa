/** The answer to `/difference` on the control socket. Pure. */
import * as v from "valibot";
import { PROTOCOLS } from "../../net/port.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import { mode, QUARANTINED } from "../dump/dump_status.ts";
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
import type { FamilyDifference, NodeDifference } from "./node_difference.ts";

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
  family: ipFamily,
  differences: list(DIFFERENCE),
  quarantined: QUARANTINED,
  services: list(SERVICE),
});

/** Drops any other field, such as `repair`. */
const ANSWER = fields({
  mode,
  nodeName: objectName,
  families: v.pipe(
    list(FAMILY),
    v.check((all) => new Set(all.map(({ family }) => family)).size === all.length),
  ),
});

/** The JSON of the answer. */
export type DifferenceAnswer = v.InferInput<typeof ANSWER>;

/** Encodes a difference without its repair. */
export function differenceAnswer({ mode, nodeName, families }: NodeDifference): DifferenceAnswer {
  return { mode, nodeName, families: families.map(familyAnswer) };
}

/** Decodes an answer; returns undefined if it is malformed. */
export function answeredDifference(answer: unknown): NodeDifference | undefined {
  const { success, output } = v.safeParse(ANSWER, answer);
  if (!success) return undefined;
  const families = output.families.map(({ services, ...rest }) => ({
    ...rest,
    services: new Map(services),
  }));
  return { ...output, families };
}

function familyAnswer({ family, services, differences, quarantined }: FamilyDifference) {
  const keys = new Set([...differences, ...quarantined].flatMap(({ key }) => key ?? []));
  const named = [...keys].flatMap((key): [string, v.InferInput<typeof SERVICE>[1]][] => {
    const service = services.get(key);
    return service ? [[key, { name: service.name, protocol: service.protocol }]] : [];
  });
  return { family, differences: [...differences], quarantined: [...quarantined], services: named };
}
