/**
 * Attacks a kube-relay in ipvs mode with few open files through tenants and clients. It continues,
 * and serves another Service as before.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import type { EndpointSlice } from "../../lib/api/kinds/endpoint_slice.ts";
import type { Service } from "../../lib/api/kinds/service.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { testEndpointSlice, testService } from "../support/builders/builders.ts";
import { hostileManifests } from "../support/builders/hostile_objects.ts";
import { replaceFile } from "../support/builders/kubeconfig_file.ts";
import { manifestText, rawObjects } from "../support/builders/raw_objects.ts";
import { VIP, VIP_6, VIP_UDP, webServices, webSlices } from "../support/builders/web_service.ts";
import { ProbeClient, SILENCE_MS } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { isMissing, program } from "../support/requirement.ts";
import { IPVS_MODE } from "../support/stages/ipvs_mode.ts";
import { virtualServers } from "../support/stages/ipvs_state.ts";
import type { RelayProcess } from "../support/stages/relay_process.ts";
import { RuleScene } from "../support/stages/rule_scene.ts";
import { GUEST } from "./guest.ts";

const ignore = isMissing("an attack on ipvs mode", [
  GUEST,
  ...["prlimit", "mkfifo"].map(program),
  ...IPVS_MODE.requirements(),
]);

const { IPv4 } = ADDRESSES;
/** Real servers of Service `web` by its pods. */
const PODS = {
  b1: / -r (10\.180\.1\.1|\[fd00:10::b01\]):/,
  a1: / -r (10\.180\.0\.1|\[fd00:10::a01\]):/,
};
/** Virtual servers of Service `web`, and their real ones. */
const OF_WEB = /^-[aA] \S+ (172\.30\.0\.41|192\.168\.99\.11|\[fd00:172:30::41\]):80 /;
/** Soft and hard limit of the process, and more clients of each port than that. */
const OPEN_FILES = "--nofile=300:300";
const TOO_MANY = 320;
const OWN_PORTS = [[10_256, "livez"], [10_249, "metrics"]] as const;
/** Of one Service: each port on each address. */
const PORTS = 2_000;
const WIDE = ["172.30.0.60", "192.168.99.61", "192.168.99.62", "192.168.99.63"] as const;

function wideService(): [Service, EndpointSlice] {
  const [clusterIP, ...externalIPs] = WIDE;
  const ports = Array.from({ length: PORTS }, (_, at) => ({ name: `p${at}`, port: 1_000 + at }));
  const slicePorts = ports.map(({ name }) => ({ name, protocol: "TCP", port: 8080 }));
  return [
    testService("wide", { clusterIP, externalIPs, ports }),
    testEndpointSlice("wide", { endpoints: [IPv4.localPods[0]], ports: slicePorts }),
  ];
}

const PROTOCOLS = ["TCP", "UDP"] as const;

/** A Service whose only endpoint is an address of a Service. */
function looped(name: string, clusterIP: string, to: string): [Service, EndpointSlice] {
  const addressType = to.includes(":") ? "IPv6" : "IPv4";
  const ports = PROTOCOLS.map((protocol) => ({ name: protocol.toLowerCase(), protocol, port: 80 }));
  const slice = testEndpointSlice(name, { addressType, endpoints: [to], ports });
  return [testService(name, { clusterIP, ports }), slice];
}

Deno.test({
  name: "ipvs mode under attack, with few open files: another Service is served and programmed",
  ignore,
  async fn(t) {
    await using stage = await RuleScene.create(IPVS_MODE);
    const { node, scene, scene: { cluster: { client } } } = stage;
    const folder = `${scene.folder}/manifests`;
    const probes = ProbeClient.start(client);
    const args = [...IPVS_MODE.args, "--metrics-bind-address=0.0.0.0"];
    const start = (): RelayProcess => scene.start(args, { by: ["prlimit", OPEN_FILES] });
    /** All objects except endpoints whose last connections end. */
    const lasting = async () => String(await stage.state()).replaceAll(/^-a .* -w 0\n/gm, "");
    let relay = start();
    await relay.settled();

    /** Virtual servers and their real ones, without those that drain. */
    const servers = async () =>
      (await virtualServers((program, args) => node.output(program, args)))
        .filter((line) => !line.endsWith("-w 0"));
    const ofWeb = async () => (await servers()).filter((line) => OF_WEB.test(line));
    const attack = async (name: string, objects: readonly [Service, EndpointSlice][]) => {
      const all = objects.flatMap(([service, slice]) => [
        ...rawObjects("Service", service),
        ...rawObjects("EndpointSlice", slice),
      ]);
      await replaceFile(`${folder}/${name}.yaml`, manifestText(all));
    };
    /** Service `web` follows its endpoints there and back, and has the virtual servers of before. */
    const webIsProgrammed = async () => {
      for (const pod of ["b1", "a1"] as const) {
        await scene.write(webServices(), webSlices(pod));
        await eventually(`pod-${pod} is programmed`, async () => {
          const found = await ofWeb();
          const reals = found.filter((line) => PODS[pod].test(line));
          return found.length === web.length && reals.length === web.length / 2;
        });
        for (const target of [VIP, VIP_6, VIP_UDP]) {
          assertEquals(await probes.who(target), `pod-${pod}`, relay.log);
        }
        assert(!/os error 24|EMFILE/.test(relay.log), relay.log);
      }
    };
    const web = await ofWeb();
    assertEquals(web.length, 12, "TCP and UDP at three addresses, with an endpoint each");

    await t.step("idle and slow clients of its ports", async () => {
      const idle = client.startDeno(
        new URL("../support/drivers/idle_clients.ts", import.meta.url),
        [String(TOO_MANY), ...OWN_PORTS.flatMap(([port]) => [IPv4.node, String(port)])],
      );
      assertEquals(await idle.nextLine(), "open");
      await webIsProgrammed();
      for (const [port, path] of OWN_PORTS) {
        const code = `console.log((await fetch("http://${IPv4.node}:${port}/${path}")).status)`;
        assertEquals((await client.output(Deno.execPath(), ["eval", code])).trim(), "200", path);
      }
      await idle.kill();
    });

    await t.step("a Service with thousands of ports on several addresses", async () => {
      await attack("wide", [wideService()]);
      await webIsProgrammed();
      const wide = async () =>
        (await servers()).filter((line) => WIDE.some((each) => line.startsWith(`-A -t ${each}:`)));
      await eventually("it is served", async () => (await wide()).length === PORTS * WIDE.length);
      await Deno.remove(`${folder}/wide.yaml`);
      await webIsProgrammed();
      await eventually("it is gone", async () => (await wide()).length === 0);
    });

    await t.step("endpoints that are addresses of Services", async () => {
      const loops = [
        looped("own", "172.30.0.70", "172.30.0.70"),
        looped("pair-a", "172.30.0.71", "172.30.0.72"),
        looped("pair-b", "172.30.0.72", "172.30.0.71"),
        looped("six", "fd00:172:30::70", "fd00:172:30::70"),
      ];
      await attack("loops", loops);
      const reals = async () => (await servers()).filter((line) => /-r .*(0\.7|::7)/.test(line));
      await eventually("they are served", async () => (await reals()).length === 8);
      const targets = loops.flatMap(([{ spec: { clusterIP: address = "" } }]) =>
        PROTOCOLS.map((protocol) => ({ protocol, address, port: 80 }))
      );
      for (const word of await probes.whoAll(targets, SILENCE_MS)) assert(!/^pod/.test(word), word);
      const connections = await node.output("cat", ["/proc/net/ip_vs_conn"]);
      assert(connections.split("\n").length < 200, connections);
      await webIsProgrammed();
    });

    await t.step("hostile names and values", async () => {
      const rules = await lasting();
      const objects = hostileManifests();
      for (const [at, text] of objects.entries()) await replaceFile(`${folder}/h${at}.json`, text);
      const last = `h${objects.length - 1}.json`;
      await relay.until("all are read", ({ sources }) => JSON.stringify(sources).includes(last));
      await webIsProgrammed();
      assertEquals(/(?!\n)\p{Cc}/u.exec(relay.log), null, "what a terminal would obey");
      const odd = (await servers()).find((line) => /0\.0\.0\.0|224\.|255\.|127\.|::\]/.test(line));
      assertEquals(odd, undefined);
      for (const at of objects.keys()) await Deno.remove(`${folder}/h${at}.json`);
      await webIsProgrammed();
      await eventually("nothing of them stays", async () => await lasting() === rules);
    });

    await t.step("kill -9 while endpoints change, under traffic", async () => {
      await stage.assertNoFailureWhile(async () => {
        await scene.write(webServices(), webSlices("a1", "b1"));
        await relay.kill();
        relay = start();
        await relay.logged("Entered phase");
        await scene.write(webServices(), webSlices("a1"));
        await relay.kill();
        await scene.write(webServices(), webSlices("a1", "b1"));
        relay = start();
        await relay.settled();
      }, { expect: ["pod-a1", "pod-b1"] });
    });

    await t.step("named pipes in the folder of any owner; SIGTERM ends it", async () => {
      await node.output("mkfifo", [`${folder}/pipe.yaml`]);
      await webIsProgrammed();
      await Deno.chown(folder, 65_534, 65_534);
      await webIsProgrammed();
      assertEquals(await relay.stop(), 0, relay.log);
      relay = start();
      await relay.settled();
      await webIsProgrammed();
      assertEquals(await relay.stop(), 0, relay.log);
    });
  },
});
