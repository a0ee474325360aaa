import type { AppliedServer, AppliedServers } from "./applied_servers.ts";
import { isDrained } from "./drain_list.ts";
import { type IpvsOperation, setupText } from "./ipvs_operation.ts";
import type { IpvsLayout, WantedServer } from "./layout.ts";
import type { RealServer, RealServerKey, ServerKey } from "./virtual_server.ts";

/** The operations on servers, and the state after them. */
export interface ServerChanges {
  readonly operations: readonly IpvsOperation[];
  /** `undefined` = the server will be gone. */
  readonly applied: ReadonlyMap<ServerKey, AppliedServer | undefined>;
}

const WEIGHT = 1;

/**
 * Compares the servers that may differ, in short steps. Additions to a server precede removals, so
 * it never lacks an endpoint that it had and will have.
 */
export function* diffServers(
  layout: Pick<IpvsLayout, "dirty" | "server">,
  applied: AppliedServers,
): Generator<void, ServerChanges> {
  const operations: IpvsOperation[] = [];
  const outcome = new Map<ServerKey, AppliedServer | undefined>();
  for (const key of layout.dirty) {
    yield;
    const wanted = layout.server(key);
    const there = applied.get(key);
    if (wanted === undefined) {
      if (there === undefined) continue;
      operations.push({ kind: "deleteServer", key });
      outcome.set(key, undefined);
      continue;
    }
    const before = operations.length;
    const reals = there ? change(wanted, there, operations) : create(wanted, operations);
    if (operations.length > before) {
      outcome.set(key, { setup: setupText(wanted.server), reals });
    }
  }
  return { operations, applied: outcome };
}

function create(
  { server, endpoints }: WantedServer,
  operations: IpvsOperation[],
): ReadonlyMap<RealServerKey, number> {
  operations.push({ kind: "addServer", server });
  const reals = new Map<RealServerKey, number>();
  for (const { key: text } of endpoints) {
    const key = realKey(text);
    operations.push({ kind: "addReal", server: server.key, real: realServer(key, WEIGHT) });
    reals.set(key, WEIGHT);
  }
  return reals;
}

function change(
  { server, endpoints }: WantedServer,
  there: AppliedServer,
  operations: IpvsOperation[],
): ReadonlyMap<RealServerKey, number> {
  const reals = new Map<RealServerKey, number>();
  for (const { key: text } of endpoints) {
    const key = realKey(text);
    const weight = there.reals.get(key);
    if (weight !== WEIGHT) {
      const kind = weight === undefined ? "addReal" : "editReal";
      operations.push({ kind, server: server.key, real: realServer(key, WEIGHT) });
    }
    reals.set(key, WEIGHT);
  }
  if (there.setup !== setupText(server)) operations.push({ kind: "editServer", server });
  for (const [key, weight] of there.reals) {
    if (reals.has(key)) continue;
    if (!isDrained(server.key)) {
      operations.push({ kind: "deleteReal", server: server.key, key });
      continue;
    }
    if (weight !== 0) {
      operations.push({ kind: "editReal", server: server.key, real: realServer(key, 0) });
    }
    reals.set(key, 0);
  }
  return reals;
}

function realServer(key: RealServerKey, weight: number): RealServer {
  return { key, forwarding: "masquerade", weight };
}

/** An endpoint is known by the text that ipvsadm knows it by. */
function realKey(endpoint: string): RealServerKey {
  return endpoint as RealServerKey;
}
