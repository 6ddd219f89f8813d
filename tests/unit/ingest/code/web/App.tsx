import React, { useState } from "react";
import { Button } from "@/components/Button";

type Props = { title: string };

/** The page. */
export const App: React.FC<Props> = ({ title }) => {
  const [count, setCount] = useState(0);
  return <Button label={title} onClick={() => setCount(count + 1)} />;
};

export const Memo = memo(function Memo() {
  return <App title="x" />;
});
