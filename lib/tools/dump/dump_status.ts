/** The status in a dump: the report of `kube-relay status` without annotations of the Node. */
import { BACKEND_MODES } from "../../proxy/backend.ts";
import * as v from "valibot";
import { CONTROLLER_NAMES } from "../../engine/loop_id.ts";
import { PROTOCOLS, tryParsePort } from "../../net/port.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type { StatusReport } from "../status/status_report.ts";
import {
  fields,
  flag,
  foreignText,
  ipAddress,
  ipFamily,
  list,
  number,
  objectName,
  optional,
  ownText,
  table,
  time,
} from "./dump_value.ts";

/** The modes, as a dump names them. */
export const mode = v.picklist(
  BACKEND_MODES,
  `has to be ${BACKEND_MODES.slice(0, -1).join(", ")} or ${BACKEND_MODES.at(-1)}`,
);

const port = v.pipe(
  v.number("has to be a number"),
  v.rawTransform(({ dataset, addIssue, NEVER }) => {
    const port = tryParsePort(dataset.value);
    if (port !== undefined) return port;
    addIssue({ message: "has to be a whole number between 1 and 65535" });
    return NEVER;
  }),
);

const servicePort = v.pipe(ownText, v.transform((text) => text as ServicePortKey));

/** The addresses and ServicePorts that could not be applied. */
export const QUARANTINED = list(fields({
  key: servicePort,
  address: optional(ownText),
  reason: foreignText,
  retryAt: optional(time),
}));

const address = fields({
  role: v.picklist(
    ["ClusterIP", "ExternalIP", "LoadBalancer", "NodePort", "StandIn"],
    "has to be ClusterIP, ExternalIP, LoadBalancer, NodePort or StandIn",
  ),
  address: ipAddress,
  port,
  protocol: v.picklist(PROTOCOLS, `has to be ${PROTOCOLS.join(", ")}`),
  state: v.picklist(
    ["serving", "refusing", "quarantined"],
    "has to be serving, refusing or quarantined",
  ),
  load: optional(fields({
    active: number,
    inactive: number,
    rates: optional(fields({
      connections: number,
      packetsIn: number,
      packetsOut: number,
      bytesIn: number,
      bytesOut: number,
    })),
  })),
});

/** The health of an endpoint. */
export const endpointHealth = v.picklist(
  ["unchecked", "healthy", "unhealthy", "ejected"],
  "has to be unchecked, healthy, unhealthy or ejected",
);

const traffic = optional(fields({
  bytesFromClients: number,
  bytesToClients: number,
  packetsFromClients: optional(number),
  packetsToClients: optional(number),
  opened: optional(number),
  open: optional(number),
}));

const service = fields({
  name: ownText,
  protocol: ownText,
  addresses: list(address),
  endpoints: list(fields({
    address: ownText,
    state: v.picklist(
      ["ready", "not ready", "serving, terminating", "terminating"],
      "has to be ready, not ready, 'serving, terminating' or terminating",
    ),
    local: flag,
    health: optional(fields({
      state: endpointHealth,
      reason: optional(foreignText),
      since: time,
    })),
  })),
  otherPorts: optional(list(ownText)),
  connections: optional(number),
  traffic,
  settings: optional(list(ownText)),
  quarantined: optional(foreignText),
  retryAt: optional(time),
});

/** A controller. */
export const controller = v.picklist(CONTROLLER_NAMES, "has to be the name of a controller");

const lastSync = { at: time, durationMs: number, full: flag, operations: table(number) };

const loop = {
  family: ipFamily,
  controller: optional(controller),
  summary: ownText,
  lastSync: optional(fields(lastSync)),
  pending: flag,
  failures: number,
  lastError: optional(foreignText),
  quarantined: QUARANTINED,
};

const family = fields({
  ...loop,
  mode,
  lastSync: optional(fields({ ...lastSync, services: number })),
  services: list(service),
});

const status = fields({
  version: ownText,
  pid: number,
  startedAt: time,
  phase: ownText,
  largestEventLoopDelayMs: number,
  node: fields({ name: objectName, zone: optional(ownText) }),
  sources: list(fields({
    name: foreignText,
    state: foreignText,
    problems: list(foreignText),
  })),
  hostSettings: list(fields({
    name: ownText,
    wanted: ownText,
    found: optional(foreignText),
    state: v.picklist(["kept", "changed", "refused"], "has to be kept, changed or refused"),
    purpose: ownText,
    reason: optional(foreignText),
    cure: optional(ownText),
  })),
  traffic,
  families: list(family),
  controllers: optional(list(fields({
    controller,
    families: list(fields(loop)),
    facts: list(fields({ name: ownText, text: foreignText })),
  }))),
});

/** The answer to `kube-relay status`. */
export const STATUS: v.GenericSchema<unknown, StatusReport> = status;

/** Fields of a type that another lacks, at any depth. */
type Lacking<Wanted, Has> = Wanted extends string | number | boolean | undefined ? never
  : Wanted extends readonly (infer W)[] ? Has extends readonly (infer H)[] ? Lacking<W, H> : never
  : {
    [Name in keyof Wanted]-?: Name extends keyof Has
      ? Lacking<NonNullable<Wanted[Name]>, NonNullable<Has[Name]>>
      : Name;
  }[keyof Wanted];

/** Does not compile when the status gets a field that is neither here nor left out on purpose. */
export type LeftOut = Check<Lacking<StatusReport, v.InferOutput<typeof status>>>;
/** A dump has no brief status, so no counts. */
type Check<Names extends "annotations" | "counts"> = Names;
