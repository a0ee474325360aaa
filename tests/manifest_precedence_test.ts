/**
 * Two Services in manifests that claim the same address, node port or name, in a running kube-relay
 * and after a restart.
 */
import { assertEquals, assertStringIncludes } from "@std/assert";
import type { Service } from "../lib/api/kinds/service.ts";
import { testEndpointSlice, testService } from "./support/builders/builders.ts";
import { manifestText, rawObjects } from "./support/builders/raw_objects.ts";
import { ask, TcpServer } from "./support/drivers/tcp_peers.ts";
import { unusedPort } from "./support/drivers/unused_port.ts";
import { LoopbackRelay } from "./support/stages/loopback_relay.ts";

const HOLDER = "127.53.0.1";
const [OTHER, THIRD] = ["127.53.0.2", "127.53.0.3"];
/** A time that precedes every file of a test. */
const LONG_AGO = new Date("2020-01-01T00:00:00Z");

interface Stage {
  readonly relay: LoopbackRelay;
  readonly port: number;
  /** Writes a file with a Service, which has an endpoint if a server is named. */
  put(file: string, name: string, spec: Partial<Service["spec"]>, to?: TcpServer): Promise<void>;
  /** Waits until kube-relay has read as many files, and has as many items in quarantine. */
  quarantine(files: number, items: number): Promise<readonly string[]>;
  /** Returns what answers at an address, or that nothing does. */
  answer(hostname: string, port?: number): Promise<string>;
}

function textOf(name: string, spec: Partial<Service["spec"]>, to: TcpServer | undefined): string {
  const ports = [{ name: "a", protocol: "TCP" as const, port: to?.port ?? 1 }];
  return manifestText([
    ...rawObjects("Service", testService(name, spec)),
    ...to
      ? rawObjects("EndpointSlice", testEndpointSlice(name, { endpoints: ["127.0.0.1"], ports }))
      : [],
  ]);
}

/** Runs a test on a kube-relay that serves Service `z` of file `z.json` at {@linkcode HOLDER}. */
async function withHolder(
  spec: (port: number) => Partial<Service["spec"]>,
  server: TcpServer,
  test: (stage: Stage) => Promise<void>,
): Promise<void> {
  const port = unusedPort();
  await using relay = await LoopbackRelay.start({
    manifests: { "z.json": textOf("z", spec(port), server) },
    args: ["--nodeport-addresses=127.0.0.0/8"],
  });
  await relay.settled();
  const stage: Stage = {
    relay,
    port,
    async put(file, name, spec, to) {
      const path = `${relay.folder}/${file}`;
      await Deno.writeTextFile(path, textOf(name, spec, to));
      await Deno.utime(path, LONG_AGO, LONG_AGO);
      await Deno.rename(path, `${relay.folder}/manifests/${file}`);
    },
    quarantine: (files, items) =>
      relay.until(`${files} files are read, ${items} items are in quarantine`, async () => {
        const { sources, families } = await relay.settled();
        const found = families.flatMap(({ quarantined }) =>
          quarantined.map(({ key, reason }) => `${key}: ${reason}`)
        );
        return sources.length === files && found.length === items && found.sort();
      }),
    answer: (hostname, at = port) => ask({ hostname, port: at }).catch(() => "nothing"),
  };
  assertEquals(await stage.answer(HOLDER), "z");
  await test(stage);
}

const ports = (port: number) => [{ name: "a", port }];
const FIRST = "the Service that was there first keeps it";

Deno.test("a Service that is served keeps its cluster IP against an older file with a name before, and its waiting one follows", async () => {
  await using z = TcpServer.named("z");
  await using a = TcpServer.named("a");
  const spec = (port: number) => ({ clusterIP: HOLDER, ports: ports(port) });
  await withHolder(spec, z, async ({ relay, port, put, quarantine, answer }) => {
    await put("a.json", "a", spec(port), a);
    const waiting = `ns1/a:a/TCP: ${HOLDER}:${port}/TCP belongs to ns1/z:a/TCP: ${FIRST}`;
    assertEquals(await quarantine(2, 1), [waiting]);
    assertEquals(await answer(HOLDER), "z");
    const text = await relay.explain("127.0.0.1", `${HOLDER}:${port}`);
    assertStringIncludes(text, "ns1/z:a");
    assertStringIncludes(text, `ns1/a:a also claims this address and port: ${FIRST}`);
    // A change of the Service that is served does not change whose turn it is.
    await put("z.json", "z", { ...spec(port), externalIPs: [THIRD] }, z);
    await relay.until("the change is read", async () => await answer(THIRD) === "z");
    assertEquals(await quarantine(2, 1), [waiting]);
    assertEquals(await answer(HOLDER), "z");
    await Deno.remove(`${relay.folder}/manifests/z.json`);
    await relay.until("the other Service is served", async () => await answer(HOLDER) === "a");
    assertEquals(await quarantine(1, 0), []);
  });
});

Deno.test("a Service that is served keeps its cluster IP and node port against an older Service that changes", async () => {
  await using z = TcpServer.named("z");
  await using a = TcpServer.named("a");
  const nodePort = unusedPort();
  const spec = (port: number): Partial<Service["spec"]> => ({
    ...{ clusterIP: HOLDER, type: "NodePort", ports: [{ ...ports(port)[0]!, nodePort }] },
  });
  await withHolder(spec, z, async ({ relay, port, put, quarantine, answer }) => {
    await put("a.json", "a", { clusterIP: OTHER, ports: ports(port) }, a);
    assertEquals(await quarantine(2, 0), []);
    await Deno.remove(`${relay.folder}/manifests/z.json`);
    assertEquals(await quarantine(1, 0), []);
    // Now `a` is the older one.
    await put("z.json", "z", spec(port), z);
    await relay.until("it is back", async () => await answer(HOLDER) === "z");
    await put("a.json", "a", spec(port), a);
    assertEquals(
      await quarantine(2, 2),
      [
        `ns1/a:a/TCP: :${nodePort}/TCP belongs to ns1/z:a/TCP: ${FIRST}`,
        `ns1/a:a/TCP: ${HOLDER}:${port}/TCP belongs to ns1/z:a/TCP: ${FIRST}`,
      ].sort(),
    );
    assertEquals(await answer(HOLDER), "z");
    assertEquals(await answer("127.0.0.1", nodePort), "z");
  });
});

Deno.test("a Service that claims what another one has keeps the address that a third one waits for", async () => {
  await using z = TcpServer.named("z");
  await using a = TcpServer.named("a");
  const spec = (port: number) => ({ clusterIP: HOLDER, ports: ports(port) });
  await withHolder(spec, z, async ({ port, put, quarantine, answer }) => {
    await put("m.json", "m", { clusterIP: OTHER, ports: ports(port) });
    await put("a.json", "a", spec(port), a);
    const waiting = `ns1/a:a/TCP: ${HOLDER}:${port}/TCP belongs to ns1/z:a/TCP: ${FIRST}`;
    assertEquals(await quarantine(3, 1), [waiting]);
    await put("z.json", "z", { ...spec(port), externalIPs: [OTHER] }, z);
    const refused = `ns1/z:a/TCP: ${OTHER}:${port}/TCP belongs to ns1/m:a/TCP: ` +
      "a cluster IP precedes other addresses";
    assertEquals(await quarantine(3, 2), [waiting, refused]);
    assertEquals(await answer(HOLDER), "z");
    // A newcomer comes after all of them.
    await put("b.json", "b", spec(port), a);
    assertEquals((await quarantine(4, 3))[1], waiting.replace("ns1/a", "ns1/b"));
  });
});

Deno.test("a Service that says it is of a distant future is served, and so are later ones", async () => {
  await using z = TcpServer.named("z");
  const spec = (port: number) => ({ clusterIP: HOLDER, ports: ports(port) });
  await withHolder(spec, z, async ({ relay, port, put, quarantine, answer }) => {
    for (const [index, time] of ["+275760-09-13T00:00:00.000Z", "2020-01-01T00:00:00Z"].entries()) {
      const service = testService(`y${index}`, spec(port), {
        metadata: { creationTimestamp: time },
      });
      const text = manifestText(rawObjects("Service", service));
      await Deno.writeTextFile(`${relay.folder}/manifests/y${index}.json`, text);
      await quarantine(index + 2, index + 1);
    }
    await put("x.json", "x", { clusterIP: OTHER, ports: ports(port) }, z);
    await relay.until("a later one is served", async () => await answer(OTHER) === "z");
    assertEquals(await answer(HOLDER), "z");
  });
});

Deno.test("an object that is in use keeps its name against a file with a name before, with a warning that names both", async () => {
  await using z = TcpServer.named("z");
  await using a = TcpServer.named("a");
  const spec = (port: number) => ({ clusterIP: HOLDER, ports: ports(port) });
  await withHolder(spec, z, async ({ relay, port, put, quarantine, answer }) => {
    await put("a.json", "z", { clusterIP: OTHER, ports: ports(port) }, a);
    assertEquals(await quarantine(2, 0), []);
    assertEquals([await answer(HOLDER), await answer(OTHER)], ["z", "nothing"]);
    const folder = `${relay.folder}/manifests`;
    const reason = `is not used: ${folder}/z.json:1 has it too, and was in use before`;
    const line = relay.log.split("\n").find((each) => each.includes(reason));
    assertStringIncludes(line ?? relay.log, "WARN");
    assertStringIncludes(line!, `${folder}/a.json`);
    assertStringIncludes(line!, "Service ns1/z");
  });
});

Deno.test("after a start, the Service of the older file has an address, then the first by name", async () => {
  await using a = TcpServer.named("a");
  await using z = TcpServer.named("z");
  const port = unusedPort();
  const text = (name: string, to: TcpServer) =>
    textOf(name, { clusterIP: HOLDER, ports: ports(port) }, to);
  for (
    const [times, owner, why] of [
      [{ "a.json": new Date("2021-01-01T00:00:00Z"), "z.json": LONG_AGO }, "z", FIRST],
      [
        { "a.json": LONG_AGO, "z.json": LONG_AGO },
        "a",
        "neither Service is known to be older, so the first by name has it",
      ],
    ] as const
  ) {
    await using relay = await LoopbackRelay.start({
      manifests: { "a.json": text("a", a), "z.json": text("z", z) },
      times,
    });
    await relay.settled();
    assertEquals(await ask({ hostname: HOLDER, port }), owner);
    const explained = await relay.explain("127.0.0.1", `${HOLDER}:${port}`);
    assertStringIncludes(explained, `also claims this address and port: ${why}`);
  }
});
