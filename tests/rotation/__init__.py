"""The seven runs: keys change under load and through faults, and no client is rejected.

run             program                     long version                    short version
1 tokens        tokens.py                   make demo-rotation              test_tokens.py
2 authorities   authorities.py              make demo-rotation              test_authorities.py
3 conditions    test_conditions.py
4 faults        faults/run.py               make rotation-faults            faults/test_faults.py
5 emergency     tokens.py, test_backup.py   make demo-rotation              test_tokens.py
6 upgrade       tests/upgrades/run.py       make upgrade FROM=<commit>      tests/upgrades
7 costs         costs.py                    make rotation-costs             test_costs.py
"""
