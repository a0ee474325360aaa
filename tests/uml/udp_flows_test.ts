/** UDP flows that are older than their Service, or than its endpoint, through IPVS. */
import { IPVS_MODE } from "../support/stages/ipvs_mode.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { checkSendersFollowTheirService } from "../support/drivers/udp_senders.ts";
import { GUEST } from "./guest.ts";

const test = testNeeding("UDP flows through IPVS", [
  GUEST,
  program("conntrack"),
  ...IPVS_MODE.requirements(),
]);

test("ipvs mode serves UDP clients whose sockets are older than the Service", async (t) => {
  await using scene = await RelayScene.create();
  await scene.write([], []);
  await using relay = scene.start([...IPVS_MODE.args]);
  await relay.settled();
  await checkSendersFollowTheirService(scene, t);
});
