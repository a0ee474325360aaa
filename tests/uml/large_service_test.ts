/**
 * A Service with very many real servers on a real kernel: the change of another Service is written
 * while it is being written.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { testEndpointSlice, testService } from "../support/builders/builders.ts";
import { replaceFile } from "../support/builders/kubeconfig_file.ts";
import { manifestText, rawObjects } from "../support/builders/raw_objects.ts";
import { webServices, webSlices } from "../support/builders/web_service.ts";
import { eventually } from "../support/eventually.ts";
import { isMissing } from "../support/requirement.ts";
import { IPVS_MODE } from "../support/stages/ipvs_mode.ts";
import { virtualServers } from "../support/stages/ipvs_state.ts";
import { RuleScene } from "../support/stages/rule_scene.ts";
import { GUEST } from "./guest.ts";

const ignore = isMissing("a large Service in ipvs mode", [GUEST, ...IPVS_MODE.requirements()]);

const [ADDRESSES, ENDPOINTS] = [40, 1_000];
const REAL_SERVERS = ADDRESSES * ENDPOINTS;

/** Each endpoint at each address. */
function largeService(): string {
  const service = testService("large", {
    clusterIP: "172.30.0.80",
    externalIPs: Array.from({ length: ADDRESSES - 1 }, (_, at) => `192.168.99.${100 + at}`),
  });
  const slice = testEndpointSlice("large", {
    endpoints: Array.from({ length: ENDPOINTS }, (_, at) => `10.181.${at >> 8}.${at & 255}`),
    ports: [{ name: "", protocol: "TCP", port: 8080 }],
  });
  return manifestText([...rawObjects("Service", service), ...rawObjects("EndpointSlice", slice)]);
}

Deno.test({
  name: "ipvs mode: a change is written while a Service with 40,000 real servers is",
  ignore,
  async fn() {
    await using stage = await RuleScene.create(IPVS_MODE);
    const { node, scene } = stage;
    const relay = scene.start([...IPVS_MODE.args]);
    await relay.settled();
    const servers = () => virtualServers((program, args) => node.output(program, args));
    const largeIn = (lines: readonly string[]) =>
      lines.filter((line) => line.includes(" -r 10.181.")).length;
    const isChanged = (lines: readonly string[]) =>
      lines.filter((line) => / -r 10\.180\.1\.1:.* -w 1$/.test(line)).length;

    await replaceFile(`${scene.folder}/manifests/large.yaml`, largeService());
    await eventually("it is being written", async () => largeIn(await servers()) > 0);
    await scene.write(webServices(), webSlices("b1"));
    let found: readonly string[] = [];
    await eventually("the change is written", async () => {
      found = await servers();
      return isChanged(found) > 0;
    });
    const before = largeIn(found);
    assert(before < REAL_SERVERS, `${before} real servers of the large Service come first`);
    await eventually("all of it is written", async () => largeIn(await servers()) === REAL_SERVERS);
    await relay.settled();
    assertEquals(await relay.stop(), 0, relay.log);
  },
});
