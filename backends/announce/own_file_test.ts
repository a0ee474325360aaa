import { assertEquals, assertRejects } from "@std/assert";
import { namesIn, withFolder } from "../../tests/support/with_folder.ts";
import { BIRD_FILE } from "./bird/data_plane.ts";
import { OWNER_LINE } from "./bird/bird_config.ts";
import { CNI_FILE, cniText } from "./pod_network/data_plane.ts";
import { readOwnFile, writeOwnFile } from "./own_file.ts";

const CNI = cniText({ podCidrs: [], mtu: 1480, portMappings: true });
const FILES = [
  {
    kind: BIRD_FILE,
    own: `${OWNER_LINE}\nrouter id 192.0.2.1;\n`,
    foreign: ["", "router id 192.0.2.1;\n", ` ${OWNER_LINE}\n`, OWNER_LINE],
  },
  {
    kind: CNI_FILE,
    own: CNI,
    foreign: ['{"name":"cbr0"}', "", "[]", "null", '{"kubeRelay":true}'],
  },
];

for (const { kind, own, foreign } of FILES) {
  Deno.test(`a ${kind.name} is written at once, with its folder, for root alone`, () =>
    withFolder(async (folder) => {
      const path = `${folder}/new/file`;
      assertEquals(await readOwnFile(path, kind), undefined);
      await writeOwnFile(path, kind, own);
      assertEquals(await readOwnFile(path, kind), own);
      assertEquals((await Deno.stat(path)).mode! & 0o777, 0o600);
      assertEquals(await namesIn(`${folder}/new`), ["file"]);
      await writeOwnFile(path, kind, undefined);
      assertEquals(await readOwnFile(path, kind), undefined);
    }));

  Deno.test(`a ${kind.name} that kube-relay did not write is refused`, () =>
    withFolder(async (folder) => {
      for (const text of foreign) {
        await Deno.writeTextFile(`${folder}/file`, text);
        await assertRejects(() => readOwnFile(`${folder}/file`, kind), Error, "did not write it");
      }
    }));
}
