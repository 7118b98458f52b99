"""The broker's side of tiering: starts and watches the tier process, answers its questions."""
