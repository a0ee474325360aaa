import { assert, assertEquals } from "@std/assert";
import { bgpPeer } from "../../../tests/support/builders/bgp_plans.ts";
import { withFolder } from "../../../tests/support/with_folder.ts";
import { readSecrets } from "./data_plane.ts";

/** Password files that cannot be used, and why. */
const WRONG: readonly (readonly [content: string | undefined, reason: string])[] = [
  [undefined, "No such file or directory"],
  ["", "it is empty"],
  ["\n", "it is empty"],
  ["a".repeat(81), "the password has 81 bytes; TCP-MD5 takes at most 80"],
  ['a"b', "a double quote or a control character, which BIRD cannot read"],
  ["a\nb", "a double quote or a control character, which BIRD cannot read"],
  ["a".repeat(5000), "it has more than 4096 bytes, which is the limit"],
];

for (const [content, reason] of WRONG) {
  Deno.test(`readSecrets() leaves out a peer whose password file holds ${content?.slice(0, 5)}: ${reason}`, () =>
    withFolder(async (folder) => {
      const [good, wrong] = [`${folder}/good`, `${folder}/wrong`];
      await Deno.writeTextFile(good, "fine\n");
      if (content !== undefined) await Deno.writeTextFile(wrong, content);
      const peers = [
        bgpPeer("a", "192.0.2.2", { passwordFile: good }),
        bgpPeer("b", "192.0.2.3", { passwordFile: wrong }),
      ];
      const { leftOut, text } = await readSecrets(Math.random, undefined, peers);
      assertEquals([...leftOut], [[
        "b",
        `Cannot use password file '${wrong}' of peer b: ${reason}`,
      ]]);
      assert(text.endsWith('define password_a = "fine";\n'), text);
    }));
}
