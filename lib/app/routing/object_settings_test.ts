import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import {
  BGP_PEER,
  type BgpPeerObject,
  LOAD_BALANCER_POOL,
} from "../../api/kinds/routing_objects.ts";
import { defaultConfiguration } from "../../config/configuration.ts";
import { InformerSet } from "../../kube/informer_set.ts";
import { SILENT_LOGGER } from "../../log/silent_logger.ts";
import { ObjectSettings } from "./object_settings.ts";

const { routing: given } = defaultConfiguration();
const ROUTING = { ...given, bgp: { ...given.bgp, enabled: true } };

/** Settings of objects, before any is known. */
function unsynced() {
  const [clock, informers] = [new FakeClock(), new InformerSet()];
  const calls: string[] = [];
  const settings: ObjectSettings = new ObjectSettings(
    { clock, logger: SILENT_LOGGER, random: () => 0.5 },
    {
      ...{ informers, nodeName: "node-a", isNode: () => true, poolProblems: () => [] },
      onChange: () => {
        calls.push(`synced ${settings.synced}`);
        settings.join(ROUTING);
      },
    },
  );
  const [pools, peers] = [informers.of(LOAD_BALANCER_POOL), informers.of(BGP_PEER)];
  return { clock, settings, calls, pools, peers };
}

function peer(uid: string, spec: object): BgpPeerObject {
  const metadata = { name: "tor", uid, generation: 1 };
  return { metadata, spec: { address: "192.0.2.1", as: 64513, ...spec } } as never;
}

Deno.test("objects are known once they are taken, also if the file changes meanwhile", async () => {
  const { clock, settings, calls, pools, peers } = unsynced();
  pools.markSynced();
  peers.markSynced();
  assertEquals(settings.synced, false, "addresses of the last run would be given up");
  settings.join(ROUTING);
  assertEquals(settings.synced, false);
  await clock.advance(100);
  assertEquals([settings.synced, calls], [true, ["synced true"]]);
});

Deno.test("a status is never that of another object of the name, and keeps conditions of others", async () => {
  const { clock, settings, pools, peers } = unsynced();
  const end = new AbortController();
  const written: string[] = [];
  const client = {
    patch(_: string, patch: unknown) {
      const { status } = patch as { status: { conditions: { readonly reason: string }[] } };
      written.push(`${status.conditions.map(({ reason }) => reason)}`);
      return Promise.resolve({});
    },
  };
  pools.markSynced();
  peers.upsert(peer("first", {}));
  peers.markSynced();
  await clock.advance(100);
  const leading = settings.lead(client, end.signal);
  await clock.advance(5_000);
  assertEquals(written, ["Used"]);

  peers.delete("tor");
  const conditions = [{ type: "Reviewed", status: "True", reason: "OfAnother" }];
  peers.upsert({ ...peer("second", { as: 65535 }), status: { conditions } } as never);
  await clock.advance(99);
  assertEquals(written.length, 1, "nobody has judged it yet");
  await clock.advance(10_000);
  assertEquals(written, ["Used", "OfAnother,LastGoodVersionUsed"]);
  end.abort();
  await leading;
});

Deno.test("without BGP, the session of a former run is taken out of the status", async () => {
  const { clock, settings, peers } = unsynced();
  const end = new AbortController();
  const sessions = { "node-a": "Established", "node-b": "Established" };
  peers.upsert({ ...peer("first", {}), status: { sessions } } as never);
  const patches: unknown[] = [];
  const patch = (path: string, value: unknown) => {
    patches.push([path, value]);
    return Promise.resolve({});
  };
  const reporting = settings.report({ patch }, undefined, end.signal);
  await clock.advance(10_000);
  assertEquals(patches, [[
    "/apis/kube-relay.io/v1alpha1/bgppeers/tor/status",
    { status: { sessions: { "node-a": null } } },
  ]]);
  end.abort();
  await reporting;
});
