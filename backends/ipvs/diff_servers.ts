import type { AppliedServer, AppliedServers } from "./applied_servers.ts";
import { isDrained } from "./drain_list.ts";
import { type IpvsOperation, setupText } from "./ipvs_operation.ts";
import type { IpvsLayout, WantedServer } from "./layout.ts";
import { type ServiceKey, serviceKeyOfPort } from "../../lib/proxy/service_port_name.ts";
import type { RealServer, RealServerKey, ServerKey } from "./virtual_server.ts";
import { NO_BOUNDS, type WriteBounds, WriteRoom } from "./write_room.ts";

/** The operations on servers, and the state after them. */
export interface ServerChanges {
  readonly operations: readonly IpvsOperation[];
  /** `undefined` = the server will be gone. */
  readonly applied: ReadonlyMap<ServerKey, AppliedServer | undefined>;
  /** Servers that may differ after the operations: the bounds left no room for the rest. */
  readonly unfinished: readonly ServerKey[];
}

const WEIGHT = 1;
const NO_REALS: ReadonlyMap<RealServerKey, number> = new Map();
/** A new server gets at least one real server with it: its address is opened in the same write. */
const FIRST_OPERATIONS = 2;

/**
 * Compares the servers that may differ, in short steps. Additions to a server precede removals, so
 * it never lacks an endpoint that it had and will have, even if the bounds end the write in between.
 * Services that remain unfinished come last.
 */
export function* diffServers(
  layout: Pick<IpvsLayout, "dirty" | "server">,
  applied: AppliedServers,
  bounds: WriteBounds = NO_BOUNDS,
): Generator<void, ServerChanges> {
  const room = new WriteRoom(bounds);
  const parts: ServerOperations[] = [];
  const outcome = new Map<ServerKey, AppliedServer | undefined>();
  const unfinished: ServerKey[] = [];
  const large = new Set<ServiceKey>();
  for (const key of layout.dirty) {
    yield;
    const wanted = layout.server(key);
    const there = applied.get(key);
    if (wanted === undefined) {
      if (there === undefined) continue;
      parts.push({ operations: [{ kind: "deleteServer", key }] });
      outcome.set(key, undefined);
      continue;
    }
    const service = serviceKeyOfPort(wanted.owner);
    const { operations, isFinished } = firstOperations(wanted, there, { service, room });
    if (!isFinished) {
      unfinished.push(key);
      large.add(service);
    }
    if (operations.length === 0) continue;
    parts.push({ service, operations });
    outcome.set(key, after(operations, there));
  }
  const isLast = ({ service }: ServerOperations) => service !== undefined && large.has(service);
  const ordered = [...parts.filter((part) => !isLast(part)), ...parts.filter(isLast)];
  return {
    operations: ordered.flatMap(({ operations }) => operations),
    applied: outcome,
    unfinished,
  };
}

interface ServerOperations {
  /** Absent for a server that goes. */
  readonly service?: ServiceKey;
  readonly operations: readonly IpvsOperation[];
}

/** The operations on a server for which there is room. */
function firstOperations(
  wanted: WantedServer,
  there: AppliedServer | undefined,
  { service, room }: { readonly service: ServiceKey; readonly room: WriteRoom },
): { readonly operations: readonly IpvsOperation[]; readonly isFinished: boolean } {
  const least = there === undefined ? FIRST_OPERATIONS : 0;
  const operations: IpvsOperation[] = [];
  if (least === 0 && !room.hasRoomFor(service)) return { operations, isFinished: false };
  for (const operation of there ? change(wanted, there) : create(wanted)) {
    if (operations.length >= least && !room.hasRoomFor(service)) {
      return { operations, isFinished: false };
    }
    room.take(service);
    operations.push(operation);
  }
  return { operations, isFinished: true };
}

/** The state of a server after operations on it. */
function after(
  operations: readonly IpvsOperation[],
  there: AppliedServer | undefined,
): AppliedServer {
  let setup = there?.setup;
  const reals = new Map(there?.reals ?? NO_REALS);
  for (const operation of operations) {
    if (operation.kind === "addServer" || operation.kind === "editServer") {
      setup = setupText(operation.server);
    } else if (operation.kind === "addReal" || operation.kind === "editReal") {
      reals.set(operation.real.key, operation.real.weight);
    } else if (operation.kind === "deleteReal") reals.delete(operation.key);
  }
  return { setup, reals };
}

function* create({ server, endpoints }: WantedServer): Generator<IpvsOperation> {
  yield { kind: "addServer", server };
  for (const { key } of endpoints) {
    yield { kind: "addReal", server: server.key, real: realServer(realKey(key), WEIGHT) };
  }
}

function* change(
  { server, endpoints }: WantedServer,
  there: AppliedServer,
): Generator<IpvsOperation> {
  const kept = new Set<RealServerKey>();
  for (const { key: text } of endpoints) {
    const key = realKey(text);
    const weight = there.reals.get(key);
    if (weight !== undefined) kept.add(key);
    if (weight === WEIGHT) continue;
    const kind = weight === undefined ? "addReal" : "editReal";
    yield { kind, server: server.key, real: realServer(key, WEIGHT) };
  }
  if (there.setup !== setupText(server)) yield { kind: "editServer", server };
  for (const [key, weight] of there.reals) {
    if (kept.has(key)) continue;
    if (!isDrained(server.key)) yield { kind: "deleteReal", server: server.key, key };
    else if (weight !== 0) {
      yield { kind: "editReal", server: server.key, real: realServer(key, 0) };
    }
  }
}

function realServer(key: RealServerKey, weight: number): RealServer {
  return { key, forwarding: "masquerade", weight };
}

/** An endpoint is known by the text that ipvsadm knows it by. */
function realKey(endpoint: string): RealServerKey {
  return endpoint as RealServerKey;
}
